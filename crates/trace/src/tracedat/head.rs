//! What stands before the events in a trace.dat: descriptions of pages and events, names of tasks, options, and where the
//! CPUs' pages are. Version 6 has these one after the other, version 7 in sections that options point at.
//! (`man trace-cmd.dat.v6`, `man trace-cmd.dat.v7`)

use std::io::{self, ErrorKind, Read, Seek};

use super::bytes::{Cursor, Order};
use super::format::Format;
use super::page::Layout;
use super::{Fault, MAGIC};
use crate::pack::Packing;

/// Sizes beyond these are damage: of one description, of a section, of all tasks' names.
const FORMAT_BYTES_MAX: u64 = 4 << 20;
pub(super) const SECTION_BYTES_MAX: u64 = 256 << 20;
const CPUS_MAX: u32 = 1 << 16;

/// Numbers of options, in both versions.
mod option {
    pub const DONE: u16 = 0;
    pub const BUFFER: u16 = 3;
    pub const TRACE_CLOCK: u16 = 4;
    pub const OFFSET: u16 = 7;
    pub const CPU_COUNT: u16 = 8;
    pub const TSC_TO_NS: u16 = 14;
    pub const HEADER_INFO: u16 = 16;
    pub const EVENT_FORMATS: u16 = 18;
    pub const CMDLINES: u16 = 21;
    pub const BUFFER_TEXT: u16 = 22;
}

/// Pages of one CPU in one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    pub cpu: u32,
    pub offset: u64,
    pub size: u64,
    /// Size of a page of this buffer.
    pub page: usize,
    /// In chunks, each compressed.
    pub packed: bool,
}

/// Everything but the events.
#[derive(Debug)]
pub(super) struct Head {
    pub order: Order,
    pub layout: Option<Layout>,
    pub formats: Vec<Format>,
    /// `pid name` by line.
    pub cmdlines: Vec<u8>,
    pub pages: Vec<Pages>,
    pub packing: Packing,
    /// A buffer's table is not there.
    pub truncated: bool,
    pub clock: Option<String>,
    pub cpus: Option<u32>,
    /// Added to every time.
    pub offset_ns: i64,
    /// For clocks that count cycles: multiplier and shift. (The offset beside them, `trace-cmd report` leaves out too.)
    pub tsc: Option<(u32, u32)>,
}

impl Head {
    pub(super) fn read<R: Read + Seek>(file: R) -> Result<Self, Fault> {
        let mut file = Cursor { inner: file, order: Order::Little };
        let head = Self::read_from(&mut file);
        head.map_err(|e| match e {
            Fault::Io(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData) => {
                let what =
                    if e.kind() == ErrorKind::InvalidData { e.to_string() } else { "the end of the file".into() };
                Fault::Found(format!("{what} at byte {} of the header", file.position()))
            }
            e => e,
        })
    }

    fn read_from<R: Read + Seek>(file: &mut Cursor<R>) -> Result<Self, Fault> {
        file.bytes(MAGIC.len() as u64, u64::MAX)?;
        let version = file.string()?;
        let endian = file.bytes(2, 2)?;
        file.order = match endian[0] {
            0 => Order::Little,
            1 => Order::Big,
            other => return Err(Fault::Found(format!("byte order {other}"))),
        };
        let page = file.u32()? as usize;
        let mut head = Head {
            order: file.order,
            layout: None,
            formats: Vec::new(),
            cmdlines: Vec::new(),
            pages: Vec::new(),
            packing: Packing::None,
            truncated: false,
            clock: None,
            cpus: None,
            offset_ns: 0,
            tsc: None,
        };
        match &*version {
            "6" => head.version_6(file, page)?,
            "7" => head.version_7(file)?,
            other => return Err(Fault::Found(format!("version {other:?}"))),
        }
        Ok(head)
    }

    fn version_6<R: Read + Seek>(&mut self, file: &mut Cursor<R>, page: usize) -> Result<(), Fault> {
        self.header_info(file)?;
        for _ in 0..file.u32()? {
            let len = file.u64()?;
            file.skip(len)?;
        }
        self.event_formats(file)?;
        for _ in ["kallsyms", "printk formats"] {
            let len = file.u32()?;
            file.skip(len.into())?;
        }
        let len = file.u64()?;
        self.cmdlines = file.bytes(len, SECTION_BYTES_MAX)?;
        let cpus = file.u32()?;
        if cpus > CPUS_MAX {
            return Err(Fault::Found(format!("{cpus} CPUs")));
        }
        self.cpus = Some(cpus);
        let mut buffers = Vec::new();
        let mut mark = file.bytes(10, 10)?;
        if mark == b"options  \0" {
            loop {
                let id = file.u16()?;
                if id == option::DONE {
                    break;
                }
                let len = file.u32()?;
                let data = file.bytes(len.into(), SECTION_BYTES_MAX)?;
                if id == option::BUFFER {
                    buffers.push(self.order.uint(data.get(..8).ok_or(ErrorKind::InvalidData)?));
                } else {
                    self.option(id, &data);
                }
            }
            mark = file.bytes(10, 10)?;
        }
        self.table(file, &mark, cpus, page)?;
        for at in buffers {
            file.seek(at)?;
            match file.bytes(10, 10) {
                Ok(mark) => self.table(file, &mark, cpus, page)?,
                // The buffers of instances stand behind the first, which may be all that is left.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => self.truncated = true,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Where the CPUs' pages of a buffer of version 6 are.
    fn table<R: Read + Seek>(
        &mut self,
        file: &mut Cursor<R>,
        mark: &[u8],
        cpus: u32,
        page: usize,
    ) -> Result<(), Fault> {
        match mark {
            b"flyrecord\0" => {}
            b"latency  \0" => return Err(Fault::Found("a recording of a latency tracer, which is text".into())),
            other => {
                return Err(Fault::Found(format!("{:?} for the kind of the data", String::from_utf8_lossy(other))));
            }
        }
        let page = page.max(self.layout.map_or(0, |l| l.page));
        for cpu in 0..cpus {
            let (offset, size) = (file.u64()?, file.u64()?);
            self.pages.push(Pages { cpu, offset, size, page, packed: false });
        }
        Ok(())
    }

    fn version_7<R: Read + Seek>(&mut self, file: &mut Cursor<R>) -> Result<(), Fault> {
        let (algorithm, _) = (file.string()?, file.string()?);
        self.packing = Packing::named(&algorithm)
            .ok_or_else(|| Fault::Found(format!("compression {algorithm:?}, not zlib, zstd or none")))?;
        let mut at = file.u64()?;
        let (mut places, mut buffers) = (Vec::new(), Vec::new());
        // Sections of options chain; a chain that bites its tail is damage.
        for _ in 0..1000 {
            if at == 0 {
                break;
            }
            file.seek(at)?;
            let mut section = self.section(file, 0)?;
            at = 0;
            while let Ok(id) = section.u16() {
                let len = section.u32()?;
                let data = section.bytes(len.into(), SECTION_BYTES_MAX)?;
                let word = || data.get(..8).map(|bytes| self.order.uint(bytes)).ok_or(ErrorKind::InvalidData);
                match id {
                    option::DONE => {
                        at = word()?;
                        break;
                    }
                    option::BUFFER => buffers.push(data),
                    option::BUFFER_TEXT => {
                        return Err(Fault::Found("a recording of a latency tracer, which is text".into()));
                    }
                    option::HEADER_INFO | option::EVENT_FORMATS | option::CMDLINES => places.push((id, word()?)),
                    _ => self.option(id, &data),
                }
            }
        }
        for (id, at) in places {
            file.seek(at)?;
            let mut section = self.section(file, id)?;
            match id {
                option::HEADER_INFO => self.header_info(&mut section)?,
                option::EVENT_FORMATS => self.event_formats(&mut section)?,
                _ => {
                    let len = section.u64()?;
                    self.cmdlines = section.bytes(len, SECTION_BYTES_MAX)?;
                }
            }
        }
        buffers.into_iter().try_for_each(|data| self.buffer(file, data))
    }

    /// A section of version 7, unpacked. What it is must be `id`.
    fn section<R: Read + Seek>(&self, file: &mut Cursor<R>, id: u16) -> Result<Cursor<io::Cursor<Vec<u8>>>, Fault> {
        let (found, flags) = (file.u16()?, file.u16()?);
        if found != id {
            return Err(Fault::Found(format!("section {found} where section {id} should stand")));
        }
        file.u32()?;
        let size = file.u64()?;
        let data = if flags & 1 == 0 {
            file.bytes(size, SECTION_BYTES_MAX)?
        } else {
            let (packed, unpacked) = (file.u32()?, file.u32()?);
            let packed = file.bytes(packed.into(), SECTION_BYTES_MAX)?;
            self.packing.unpack(&packed, u64::from(unpacked).min(SECTION_BYTES_MAX) as usize)?
        };
        Ok(Cursor { inner: io::Cursor::new(data), order: self.order })
    }

    /// A buffer of version 7: the option says where each CPU's pages are, its section whether they are packed.
    fn buffer<R: Read + Seek>(&mut self, file: &mut Cursor<R>, data: Vec<u8>) -> Result<(), Fault> {
        let mut data = Cursor { inner: io::Cursor::new(data), order: self.order };
        let at = data.u64()?;
        let (_name, clock) = (data.string()?, data.string()?);
        self.clock.get_or_insert(chosen(&clock));
        let page = data.u32()? as usize;
        let cpus = data.u32()?;
        if cpus > CPUS_MAX {
            return Err(Fault::Found(format!("{cpus} CPUs")));
        }
        file.seek(at)?;
        let (_id, flags) = (file.u16()?, file.u16()?);
        for _ in 0..cpus {
            let (cpu, offset, size) = (data.u32()?, data.u64()?, data.u64()?);
            if cpu >= CPUS_MAX {
                return Err(Fault::Found(format!("CPU {cpu}")));
            }
            self.pages.push(Pages { cpu, offset, size, page, packed: flags & 1 != 0 });
        }
        Ok(())
    }

    /// An option that both versions have. One that is not understood says nothing that is needed.
    fn option(&mut self, id: u16, data: &[u8]) {
        let text = || String::from_utf8_lossy(data).trim_end_matches('\0').trim().to_owned();
        match id {
            option::TRACE_CLOCK => self.clock = Some(chosen(&text())),
            option::OFFSET => self.offset_ns = text().parse().unwrap_or(0),
            option::CPU_COUNT if data.len() >= 4 => {
                self.cpus = Some(self.order.uint(&data[..4]) as u32).filter(|cpus| *cpus <= CPUS_MAX);
            }
            option::TSC_TO_NS if data.len() >= 16 => {
                let word = |from: usize, to: usize| self.order.uint(&data[from..to]);
                self.tsc = Some((word(0, 4) as u32, word(4, 8) as u32));
            }
            _ => {}
        }
    }

    fn header_info<R: Read + Seek>(&mut self, file: &mut Cursor<R>) -> Result<(), Fault> {
        file.expect("header_page\0")?;
        let len = file.u64()?;
        let text = file.bytes(len, FORMAT_BYTES_MAX)?;
        let layout = Layout::parse(&text);
        self.layout = Some(layout.ok_or_else(|| Fault::Found("a description of pages that makes no sense".into()))?);
        file.expect("header_event\0")?;
        let len = file.u64()?;
        Ok(file.skip(len)?)
    }

    fn event_formats<R: Read + Seek>(&mut self, file: &mut Cursor<R>) -> Result<(), Fault> {
        for _ in 0..file.u32()? {
            file.string()?;
            for _ in 0..file.u32()? {
                let len = file.u64()?;
                // One that cannot be understood leaves its events without a name, which are then counted so.
                self.formats.extend(Format::parse(&file.bytes(len, FORMAT_BYTES_MAX)?));
            }
        }
        Ok(())
    }
}

/// The clock in brackets: `local global [mono]`.
fn chosen(clocks: &str) -> String {
    let chosen = clocks.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or(clocks, |(clock, _)| clock).trim().to_owned()
}
