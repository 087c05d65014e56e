"use strict";
// Sorting, searching and filtering of every table; without a script all rows are shown.
for (const explorer of document.querySelectorAll(".explorer")) {
  const table = explorer.querySelector("table");
  const rows = [...table.tBodies[0].rows];
  const heads = [...table.tHead.rows[0].cells];
  const controls = explorer.querySelector(".controls");
  const names = new Intl.Collator("en", { numeric: true });
  const value = (row, column) => {
    const cell = row.cells[column];
    return "value" in cell.dataset ? cell.dataset.value : cell.textContent;
  };
  const number = (text) => (text === "inf" ? Infinity : text === "-inf" ? -Infinity : Number(text));

  const compare = (column, sign) => (a, b) => {
    const [x, y] = [value(a, column), value(b, column)];
    if (x === "" || y === "") return (x === "") - (y === "");  // what is not known comes last
    if ("value" in a.cells[column].dataset) {
      const [p, q] = [number(x), number(y)];
      return sign * ((p > q) - (p < q));
    }
    return sign * names.compare(x, y);
  };

  const sort = (column) => {
    const next = { none: "ascending", ascending: "descending", descending: "none" };
    const order = next[heads[column].getAttribute("aria-sort")];
    for (const head of heads) head.setAttribute("aria-sort", "none");
    heads[column].setAttribute("aria-sort", order);
    const sorted = [...rows];  // "none" is the order of the model
    if (order !== "none") sorted.sort(compare(column, order === "ascending" ? 1 : -1));
    table.tBodies[0].append(...sorted);
  };

  heads.forEach((head, column) => {
    if (column && rows.length && !("value" in rows[0].cells[column].dataset)) head.classList.add("text");
    head.querySelector("button").addEventListener("click", () => sort(column));
  });
  if (!controls) continue;  // a short table

  const search = controls.querySelector("input");
  const lists = [...controls.querySelectorAll("select")];
  const count = controls.querySelector(".count");
  const filter = () => {
    const wanted = search.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const named = row.cells[0].textContent.toLowerCase().includes(wanted);
      const chosen = lists.every(
        (list) => !list.value || value(row, Number(list.dataset.column)) === list.value
      );
      row.hidden = !(named && chosen);
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} ${explorer.dataset.things}`;
  };

  search.addEventListener("input", filter);
  for (const list of lists) list.addEventListener("change", filter);
  controls.hidden = false;
  filter();
}
