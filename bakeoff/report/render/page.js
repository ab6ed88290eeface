"use strict";
(() => {
  // Tables: a click on a heading sorts by it, a second one reverses the order; empty cells stay at the end.
  const compare = (left, right, numeric) => (numeric ? Number(left) - Number(right) : left < right ? -1 : left > right ? 1 : 0);

  const sort = (table, column) => {
    const heads = [...table.tHead.rows[0].cells];
    const numeric = heads[column].classList.contains("number");
    const ascending = heads[column].getAttribute("aria-sort") !== "ascending";
    const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent;
    const rows = [...table.tBodies[0].rows];
    rows.sort((left, right) => {
      const [a, b] = [key(left), key(right)];
      if (a === "" || b === "") return (a === "") - (b === "");
      return ascending ? compare(a, b, numeric) : compare(b, a, numeric);
    });
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", ascending ? "ascending" : "descending");
    table.tBodies[0].append(...rows);
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => sort(table, column));
    });
  }

  // Figures are drawn when they are scrolled near, since a page may hold a hundred, in the colours of the page.
  const theme = () => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const [ink, line, grid] = ["--ink", "--line", "--grid"].map(colour);
    return {
      background: "transparent", font: getComputedStyle(document.body).fontFamily, view: { stroke: null },
      text: { color: ink },
      axis: { labelColor: ink, titleColor: ink, titleFontWeight: "normal", domainColor: line, tickColor: line, gridColor: grid, labelLimit: 300 },
      legend: { title: null, labelColor: ink, orient: "bottom", columns: 2, labelLimit: 0, symbolStrokeWidth: 1.5, symbolFillColor: "transparent" },
    };
  };

  const figures = new Map();
  for (const plot of document.querySelectorAll(".plot")) figures.set(plot, null);

  // Expressions are interpreted and not compiled, which the page's security policy forbids.
  const show = (plot, figure) => {
    const spec = { ...figure, width: "container", autosize: { type: "fit-x", contains: "padding" } };
    const options = { ast: true, actions: false, renderer: "svg", config: theme(), tooltip: { theme: "custom" } };
    return vegaEmbed(plot, spec, options).then(() => { plot.dataset.drawn = "yes"; });
  };

  const draw = (plot) => {
    if (figures.get(plot)) return;
    figures.set(plot, JSON.parse(document.getElementById(plot.dataset.from).textContent)[plot.dataset.name]);
    show(plot, figures.get(plot));
  };

  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watch.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "800px" });
  for (const plot of figures.keys()) watch.observe(plot);

  addEventListener("beforeprint", () => { for (const plot of figures.keys()) draw(plot); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const [plot, figure] of figures) if (figure) show(plot, figure);
  });
})();
