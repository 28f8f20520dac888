//! Builds trace.dat files: of both byte orders and word sizes, with pages of any records.

/// A recorded machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    pub big: bool,
    /// Bytes of a long: of the page's commit word.
    pub long: usize,
    pub page: usize,
}

pub const PC: Machine = Machine { big: false, long: 8, page: 4096 };

impl Machine {
    pub fn word(self, value: u64, bytes: usize) -> Vec<u8> {
        if self.big { value.to_be_bytes()[8 - bytes..].into() } else { value.to_le_bytes()[..bytes].into() }
    }

    pub fn u32(self, value: u32) -> Vec<u8> {
        self.word(value.into(), 4)
    }

    fn sized(self, text: &[u8]) -> Vec<u8> {
        [self.word(text.len() as u64, 8), text.into()].concat()
    }

    /// A record's head: in the order of the machine, bit fields too.
    pub fn head(self, type_len: u32, delta: u32) -> Vec<u8> {
        self.u32(if self.big { type_len << 27 | delta } else { type_len | delta << 5 })
    }

    /// An event's record, of data in whole words, in the short form if that is possible.
    pub fn record(self, delta: u32, data: &[u8]) -> Vec<u8> {
        assert_eq!(data.len() % 4, 0);
        match data.len() / 4 {
            words @ 1..=28 => [self.head(words as u32, delta), data.into()].concat(),
            words => [self.head(0, delta), self.u32(4 + 4 * words as u32), data.into()].concat(),
        }
    }

    /// A page. `lost`: events were lost before it, and how many if that is known.
    pub fn page(self, ts: u64, lost: Option<Option<u64>>, records: &[Vec<u8>]) -> Vec<u8> {
        let body = records.concat();
        let flags = lost.map_or(0, |stored| 1 << 31 | u64::from(stored.is_some()) << 30);
        let mut page = [self.word(ts, 8), self.word(body.len() as u64 | flags, self.long), body].concat();
        page.extend(lost.flatten().map(|count| self.word(count, self.long)).unwrap_or_default());
        assert!(page.len() <= self.page);
        page.resize(self.page, 0);
        page
    }

    fn header_page(self) -> String {
        let (long, data) = (self.long, 8 + self.long);
        format!(
            "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
             \tfield: local_t commit;\toffset:8;\tsize:{long};\tsigned:1;\n\
             \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
             \tfield: char data;\toffset:{data};\tsize:{};\tsigned:1;\n",
            self.page - data
        )
    }

    /// A file of version 6. `formats`: descriptions of events; `options`: number and data; `cpus`: pages of each.
    pub fn file(self, formats: &[String], options: &[(u16, &[u8])], cmdlines: &str, cpus: &[Vec<u8>]) -> Vec<u8> {
        let mut out = b"\x17\x08\x44tracing6\0".to_vec();
        out.extend([u8::from(self.big), self.long as u8]);
        out.extend(self.u32(self.page as u32));
        out.extend(b"header_page\0");
        out.extend(self.sized(self.header_page().as_bytes()));
        out.extend(b"header_event\0");
        out.extend(self.sized(b"# compressed entry header\n"));
        out.extend(self.u32(0));
        out.extend(self.u32(1));
        out.extend(b"sched\0");
        out.extend(self.u32(formats.len() as u32));
        formats.iter().for_each(|text| out.extend(self.sized(text.as_bytes())));
        out.extend([self.u32(0), self.u32(0)].concat());
        out.extend(self.sized(cmdlines.as_bytes()));
        out.extend(self.u32(cpus.len() as u32));
        out.extend(b"options  \0");
        for (id, data) in options {
            out.extend([self.word((*id).into(), 2), self.u32(data.len() as u32), data.to_vec()].concat());
        }
        out.extend(self.word(0, 2));
        out.extend(b"flyrecord\0");
        let mut at = (out.len() + 16 * cpus.len()).next_multiple_of(self.page);
        let start = at;
        for pages in cpus {
            out.extend([self.word(at as u64, 8), self.word(pages.len() as u64, 8)].concat());
            at += pages.len();
        }
        out.resize(start, 0);
        cpus.iter().for_each(|pages| out.extend(pages));
        out
    }
}

/// A description: `fields` are `(declaration, offset, size, signed)` behind the common ones, which take 8 bytes.
pub fn format(name: &str, id: u16, fields: &[(&str, usize, usize, bool)], print: &str) -> String {
    let common = [
        ("unsigned short common_type", 0, 2, false),
        ("unsigned char common_flags", 2, 1, false),
        ("unsigned char common_preempt_count", 3, 1, false),
        ("int common_pid", 4, 4, true),
    ];
    let fields: String = common
        .iter()
        .chain(fields)
        .map(|(text, offset, size, signed)| {
            format!("\tfield:{text};\toffset:{offset};\tsize:{size};\tsigned:{};\n", u8::from(*signed))
        })
        .collect();
    format!("name: {name}\nID: {id}\nformat:\n{fields}\nprint fmt: {print}\n")
}
