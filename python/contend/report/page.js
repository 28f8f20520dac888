// Draws the figures, in the colours of the theme; theme button, sortable tables, zoom and choice of each figure.
"use strict";
(() => {
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("contend-theme"); } catch { return null; } };
  const store = (t) => { try { localStorage.setItem("contend-theme", t); } catch { /* a file need not have storage */ } };
  const figures = [];

  // ---- theme
  const button = document.getElementById("theme");
  function setTheme(theme) {
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${theme === "dark" ? "light" : "dark"} colours`);
    figures.forEach(draw);
  }
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // A figure's colours that depend on the theme: axes and words here; a trace's own in meta.themed = [light, dark].
  function themed(f) {
    const dark = root.dataset.theme === "dark" ? 1 : 0;
    const ink = css("--ink"), soft = css("--soft"), grid = css("--grid"), paper = css("--paper");
    const layout = { ...f.layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
    layout.font = { family: css("--sans"), size: 12, color: soft };
    layout.hoverlabel = { bgcolor: paper, bordercolor: soft, font: { family: css("--sans"), size: 12, color: ink } };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis/.test(key)) {
        layout[key] = { gridcolor: grid, zerolinecolor: grid, linecolor: soft, tickcolor: soft, ...layout[key] };
      }
    }
    layout.shapes = (layout.shapes || []).map((s) => ({ ...s, line: { color: soft, width: 1, ...s.line } }));
    layout.annotations = (layout.annotations || []).map((a) => ({ ...a, font: { size: 11, color: ink } }));
    const data = f.data.map((t) => {
      const t2 = { ...t };
      if (t.meta && t.meta.themed) {
        const colour = t.meta.themed[dark];
        if (t.marker) t2.marker = { ...t.marker, color: colour };
        if (t.line) t2.line = { ...t.line, color: colour };
      }
      if (t.colorbar) t2.colorbar = { ...t.colorbar, outlinewidth: 0 };
      return t2;
    });
    return [data, layout];
  }

  // ---- figures
  function draw(f) {
    const [data, layout] = themed(f);
    return Plotly.react(f.div, data, layout, { displayModeBar: false, responsive: true, scrollZoom: false });
  }
  function zoom(f, factor) {
    const changed = {};
    for (const key of Object.keys(f.div._fullLayout).filter((k) => /^xaxis\d*$/.test(k))) {
      const axis = f.div._fullLayout[key];
      if (factor === null) { changed[`${key}.autorange`] = true; continue; }
      const [a, b] = axis.range.map(Number);
      const middle = (a + b) / 2, half = ((b - a) / 2) * factor;
      changed[`${key}.range`] = [middle - half, middle + half];
    }
    if (factor === null) {
      for (const key of Object.keys(f.div._fullLayout).filter((k) => /^[xy]axis\d*$/.test(k))) {
        const own = f.initial[key] || {};
        delete changed[`${key}.autorange`];
        if (own.range) changed[`${key}.range`] = own.range.slice(); else changed[`${key}.autorange`] = own.autorange ?? true;
      }
    }
    Plotly.relayout(f.div, changed);
  }
  function begin(figure) {
    const div = figure.querySelector(".plot");
    const f = JSON.parse(figure.querySelector("script").textContent);
    f.div = div;
    f.initial = JSON.parse(JSON.stringify(f.layout));
    div.classList.remove("waiting");
    figures.push(f);
    figure.querySelectorAll("[data-zoom]").forEach((b) =>
      b.addEventListener("click", () => zoom(f, b.dataset.zoom === "reset" ? null : Number(b.dataset.zoom))));
    const choice = figure.querySelector("select");
    if (choice) choice.addEventListener("change", () => {
      const shown = new Set(JSON.parse(choice.value));
      f.data.forEach((t, i) => { t.visible = shown.has(i); });
      draw(f);
    });
    return draw(f);
  }

  // ---- tables
  function sort(th) {
    const table = th.closest("table"), body = table.tBodies[0];
    const at = [...th.parentNode.children].indexOf(th);
    // Numbers begin with the largest, words with the first.
    const numeric = th.classList.contains("n");
    const now = th.getAttribute("aria-sort");
    const down = now ? now === "ascending" : numeric;
    for (const other of th.parentNode.children) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => { const c = row.cells[at]; const v = c.dataset.v ?? c.textContent; return numeric ? Number(v === "" ? -Infinity : v) : v; };
    const order = [...body.rows].map((row, i) => [key(row), i, row]);
    const compare = (a, b) => (numeric ? a - b || 0 : a.localeCompare(b, "en", { numeric: true }));
    order.sort((a, b) => (down ? -1 : 1) * compare(a[0], b[0]) || a[1] - b[1]);
    body.append(...order.map((o) => o[2]));
  }
  document.querySelectorAll("th button").forEach((b) => b.addEventListener("click", () => sort(b.closest("th"))));

  // A theme that was chosen stays; else the system's is followed.
  button.addEventListener("click", () => { const t = root.dataset.theme === "dark" ? "light" : "dark"; store(t); setTheme(t); });
  prefersDark.addEventListener("change", (e) => { if (!stored()) setTheme(e.matches ? "dark" : "light"); });
  setTheme(stored() || (prefersDark.matches ? "dark" : "light"));
  (async () => {
    for (const figure of document.querySelectorAll("figure[data-figure]")) {
      await begin(figure);
      await new Promise((next) => setTimeout(next));
    }
    root.dataset.drawn = "yes";
  })();
})();
