"use strict";
/* Makes the tables of a report workable: all rows, sorted, filtered, searched, copied and saved; and follows a channel
   or a sender through all of them. Text from the network enters the page as text only (textContent), never as HTML. */
(() => {
  const PAGE_ROWS = 25;
  const HEAD = 24, TAIL = 12;
  const ID_HEAD = 12, ID_TAIL = 6;
  const FEW_WORDS = 40;
  const FIGURES = new Set(["count", "part", "time", "span", "size"]);
  const BREAKABLE = new Set(["part", "time"]); /* of two parts, between which a line may end */
  const UNITS = { span: " (ms)", size: " (bytes)" };
  const numbers = new Intl.NumberFormat("en-US");
  const tables = [];
  const said = document.getElementById("said");

  /* ---- elements ---- */

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "text") element.textContent = value;
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children);
    return element;
  }

  function say(text) { said.textContent = text; }

  /* ---- values as text ---- */

  function percent(part, whole) {
    const share = part / whole;
    if (share > 0 && share < 0.001) return "under 0.1%";
    if (share > 0.999 && share < 1) return "over 99.9%";
    return (100 * share).toFixed(1) + "%";
  }

  function clock(ms) {
    const moment = new Date(ms);
    return Number.isNaN(moment.getTime()) ? "out of range" : moment.toISOString().slice(0, 19).replace("T", " ");
  }

  function span(ms) {
    for (const [unit, name] of [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]]) {
      const number = ms / unit;
      if (ms >= unit) return (number < 999.5 ? Number(number.toPrecision(3)) : numbers.format(Math.round(number))) + " " + name;
    }
    return ms + " ms";
  }

  function size(bytes) {
    if (bytes < 1024) return numbers.format(bytes) + " B";
    const power = Math.min(Math.floor(Math.log(bytes) / Math.log(1024)), 4);
    return (bytes / 1024 ** power).toFixed(1) + " " + ["KiB", "MiB", "GiB", "TiB"][power - 1];
  }

  function shortened(whole, head = HEAD, tail = TAIL) {
    return whole.length <= head + tail + 2 ? whole : whole.slice(0, head) + "…" + whole.slice(-tail);
  }

  async function copied(value, button) {
    try {
      await navigator.clipboard.writeText(value);
    } catch {
      /* Pages from a file have no clipboard in some browsers: take it from a field that is selected. */
      const field = make("textarea", { class: "unseen" });
      field.value = value;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    button.textContent = "Copied";
    say("Copied " + value);
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  /* ---- the data in the page ---- */

  async function unpacked(name) {
    const holder = document.getElementById("data-" + name);
    const bytes = Uint8Array.from(atob(holder.textContent), (letter) => letter.charCodeAt(0));
    holder.remove();
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  /* ---- what is followed: a channel, a sender ---- */

  const focus = new Map();
  let followedFrom = null; /* the table to go back to */

  function readFocus() {
    focus.clear();
    if (!location.hash.includes("=")) return;
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
      if (name === "channel" || name === "sender") focus.set(name, value);
    }
  }

  function followed(name, value, row, table) {
    const told = new URLSearchParams();
    const channel = table.places.channel;
    if (name === "sender" && channel !== undefined) told.set("channel", table.values[channel][row] ?? "");
    told.set(name, value);
    return "#" + told.toString();
  }

  function unnarrowed() {
    return tables.filter((table) => !table.follows()).map((table) => table.what).join(", ");
  }

  function showFocus() {
    const bar = document.getElementById("focus");
    bar.replaceChildren();
    bar.hidden = focus.size === 0;
    document.documentElement.style.scrollPaddingTop = "";
    if (bar.hidden) return;
    const what = [...focus].map(([name, value]) => name + " " + shortened(value)).join(", ");
    bar.append(make("strong", {}, make("bdi", { text: what, title: [...focus.values()].join(" ") })));
    const list = make("ul", { "aria-label": "Rows of " + what });
    for (const table of tables) {
      if (!table.follows()) continue;
      const link = make("a", { href: "#" + table.section, 
        text: table.what[0].toUpperCase() + table.what.slice(1) + ": " + numbers.format(table.found.length)
          + (table.count < table.total ? " in this page" : "") });
      link.addEventListener("click", (event) => {
        event.preventDefault(); /* the hash stays what is followed */
        table.reveal();
      });
      list.append(make("li", {}, link));
    }
    const back = make("button", { type: "button", text: "Show everything" });
    back.addEventListener("click", () => { location.hash = ""; });
    bar.append(back, list);
    const whole = unnarrowed();
    if (whole) bar.append(make("span", { class: "note", text: "Not narrowed: " + whole }));
    /* The bar stays in sight, and must not cover what a link leads to. */
    document.documentElement.style.scrollPaddingTop = bar.offsetHeight + 8 + "px";
  }

  async function follow() {
    const before = focus.size;
    readFocus();
    if (!before && !focus.size) return;
    if (focus.size) await Promise.all(tables.map((table) => table.load()));
    for (const table of tables) table.refresh();
    showFocus();
    if (focus.size) {
      const what = [...focus].map(([name, value]) => name + " " + value).join(", "), whole = unnarrowed();
      say("All tables show " + what + " only" + (whole ? "; not narrowed: " + whole : "") + ".");
      const bar = document.getElementById("focus");
      bar.scrollIntoView({ block: "start" });
      bar.focus({ preventScroll: true }); /* what had it is gone with its row */
    } else {
      say("All tables show everything.");
      if (followedFrom) followedFrom.reveal();
    }
  }

  /* ---- a table ---- */

  class DataTable {
    constructor(holder) {
      this.holder = holder;
      this.name = holder.dataset.table;
      this.what = holder.dataset.what;
      this.section = holder.closest("section").id;
      this.found = [];
      this.page = 0;
      this.sort = null;
      this.query = "";
      this.words = new Map();
    }

    load() {
      this.loading ??= unpacked(this.name).then((told) => this.begin(told));
      return this.loading;
    }

    begin(told) {
      Object.assign(this, { columns: told.columns, values: told.values, total: told.total, order: told.order });
      this.count = this.values.length ? this.values[0].length : 0;
      this.places = Object.fromEntries(this.columns.map((column, place) => [column.title, place]));
      this.table = this.holder.querySelector("table");
      this.body = this.table.querySelector("tbody");
      this.holder.querySelector(".without")?.remove();
      this.tools();
      this.heads();
      this.refresh();
    }

    follows() {
      return this.columns && [...focus.keys()].every((name) => this.columns.some((each) => each.follows === name));
    }

    tools() {
      const id = "search-" + this.name;
      const search = make("input", { type: "search", id, autocomplete: "off", spellcheck: "false" });
      let waiting;
      this.settle = () => {
        clearTimeout(waiting);
        const query = search.value.trim().toLowerCase();
        if (query !== this.query) { this.query = query; this.refresh(); }
      };
      search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(this.settle, 120); });
      const bar = make("div", { class: "tools", role: "group", "aria-label": this.table.caption.textContent },
        make("label", { for: id, text: "Search" }), search);
      this.columns.forEach((column, place) => {
        if (column.kind !== "word") return;
        const words = [...new Set(this.values[place])].filter(Boolean).sort();
        if (words.length < 2 || words.length > FEW_WORDS) return;
        const choice = make("select", { id: "only-" + this.name + "-" + place });
        choice.append(make("option", { value: "", text: "any" }));
        for (const word of words) choice.append(make("option", { value: word, text: shortened(word) }));
        choice.addEventListener("change", () => {
          if (choice.value) this.words.set(place, choice.value); else this.words.delete(place);
          this.refresh();
        });
        bar.append(make("label", { for: choice.id, text: column.title[0].toUpperCase() + column.title.slice(1) }), choice);
      });
      bar.append(...this.sorting());
      bar.append(make("button", { type: "button", text: "Save as CSV", onclick: () => this.save() }));
      this.holder.prepend(bar);
      this.back = make("button", { type: "button", text: "Back", onclick: () => this.turn(-1) });
      this.next = make("button", { type: "button", text: "Next", onclick: () => this.turn(1) });
      this.range = make("span", { role: "status" });
      this.pager = make("div", { class: "pager" }, this.back, this.next, this.range);
      this.table.after(this.pager);
    }

    /* Where rows are lists no heads are in sight, by which to sort. */
    sorting() {
      const id = "sort-" + this.name;
      this.sorted = make("select", { id, class: "narrow" }, make("option", { value: "", text: "as they came" }));
      this.columns.forEach((column, place) => this.sorted.append(make("option", { value: place, text: column.title })));
      this.sorted.addEventListener("change", () => {
        const place = this.sorted.value === "" ? null : Number(this.sorted.value);
        this.sortBy(place === null ? null : { place, down: FIGURES.has(this.columns[place].kind) });
      });
      this.turned = make("button", { type: "button", class: "narrow", text: "Reverse", disabled: true,
        onclick: () => this.sortBy({ place: this.sort.place, down: !this.sort.down }) });
      return [make("label", { for: id, class: "narrow", text: "Sort by" }), this.sorted, this.turned];
    }

    sortBy(sort) {
      this.sort = sort;
      for (const cell of this.cells) cell.removeAttribute("aria-sort");
      if (sort) this.cells[sort.place].setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      else say("The first order is back: " + this.order + ".");
      this.sorted.value = sort ? sort.place : "";
      this.turned.disabled = sort === null;
      this.refresh();
    }

    heads() {
      this.cells = this.table.tHead.rows[0].cells;
      this.columns.forEach((column, place) => {
        const button = make("button", { type: "button", text: column.title });
        const down = FIGURES.has(column.kind);
        button.addEventListener("click", () => {
          const before = this.sort && this.sort.place === place ? this.sort : null;
          /* One direction, the other one, and then the order in which the rows came. */
          this.sortBy(before === null ? { place, down } : before.down === down ? { place, down: !down } : null);
        });
        this.cells[place].replaceChildren(button);
      });
    }

    refresh() {
      if (!this.columns) return;
      const wanted = this.columns
        .map((column, place) => [place, column.follows && focus.get(column.follows)])
        .filter(([, value]) => value !== undefined && value !== null);
      const searched = this.columns.map((column, place) => place).filter((place) => !FIGURES.has(this.columns[place].kind));
      const found = [];
      for (let row = 0; row < this.count; row++) {
        if (wanted.some(([place, value]) => (this.values[place][row] ?? "") !== value)) continue;
        let fits = true;
        for (const [place, word] of this.words) fits &&= this.values[place][row] === word;
        if (fits && this.query) {
          fits = searched.some((place) => (this.values[place][row] ?? "").toLowerCase().includes(this.query));
        }
        if (fits) found.push(row);
      }
      if (this.sort) {
        const values = this.values[this.sort.place], sign = this.sort.down ? -1 : 1;
        found.sort((one, other) => {
          const a = values[one], b = values[other];
          if (a === null || b === null) return (a === null) - (b === null); /* unknown ones come last */
          return (a < b ? -1 : a > b ? 1 : one - other) * sign;
        });
      }
      this.found = found;
      this.page = 0;
      this.show();
    }

    turn(by) { this.page += by; this.show(); }

    show() {
      const first = this.page * PAGE_ROWS, end = Math.min(first + PAGE_ROWS, this.found.length);
      this.body.replaceChildren(...this.found.slice(first, end).map((row) => this.row(row)));
      this.back.disabled = first === 0;
      this.next.disabled = end >= this.found.length;
      this.pager.hidden = this.found.length <= PAGE_ROWS && this.found.length === this.count;
      this.range.textContent = this.found.length
        ? `${numbers.format(first + 1)} to ${numbers.format(end)} of ${numbers.format(this.found.length)}`
        : "No row fits.";
    }

    row(number) {
      return make("tr", {}, ...this.columns.map((column, place) => {
        const side = BREAKABLE.has(column.kind) ? "figure " + column.kind : FIGURES.has(column.kind) ? "figure" : null;
        const cell = make("td", { class: side, "data-title": column.title });
        cell.append(this.cell(column, this.values[place][number], number));
        return cell;
      }));
    }

    cell(column, value, row) {
      if (value === null) return FIGURES.has(column.kind) ? "-" : make("i", { text: column.absent });
      switch (column.kind) {
        case "name": {
          const label = make("bdi", { class: "id", text: shortened(value) || "(empty)", title: value });
          if (!column.follows) return label;
          const href = followed(column.follows, value, row, this);
          return make("a", { href, onclick: () => { followedFrom = this; } }, label);
        }
        case "id": {
          const copy = make("button", { type: "button", class: "copy", text: "Copy", "aria-label": `Copy ${column.title} ${value}` });
          copy.addEventListener("click", () => copied(value, copy));
          return make("span", { class: "copied" }, 
            make("bdi", { class: "id", text: shortened(value, ID_HEAD, ID_TAIL), title: value }), copy);
        }
        case "part": {
          const whole = this.values[this.places[column.of]][row];
          return numbers.format(value) + (whole ? ` (${percent(value, whole)})` : "");
        }
        case "time": {
          const [day, ...moment] = clock(value).split(" ");
          return make("span", {}, make("span", { text: day }), " ", make("span", { text: moment.join(" ") }));
        }
        case "span": return span(value);
        case "size": return size(value);
        case "count": return numbers.format(value);
        default: return make("bdi", { text: value });
      }
    }

    /* What is shown, in the order in which it is shown, with full ids and times as ISO 8601. */
    csv() {
      const field = (column, value) => {
        if (value === null) return "";
        if (column.kind === "time") {
          const moment = new Date(value);
          return Number.isNaN(moment.getTime()) ? "" : moment.toISOString();
        }
        let text = String(value);
        /* A spreadsheet would compute what begins like a formula, and a stranger may have written it. */
        if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
        return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
      };
      const lines = [this.columns.map((column) => column.title + (UNITS[column.kind] ?? "")).join(",")];
      for (const row of this.found) {
        lines.push(this.columns.map((column, place) => field(column, this.values[place][row])).join(","));
      }
      return lines.join("\r\n") + "\r\n";
    }

    save() {
      this.settle(); /* what was typed a moment ago */
      const link = make("a", { download: this.name + ".csv" });
      const address = URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" }));
      link.href = address;
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 10000);
      say(`${numbers.format(this.found.length)} rows saved as ${this.name}.csv`);
    }

    reveal() {
      this.holder.closest("details").open = true;
      this.holder.scrollIntoView({ block: "start" });
      const first = this.holder.querySelector("input, button");
      if (first) first.focus({ preventScroll: true });
    }
  }

  /* ---- begin ---- */

  /* An old browser cannot unpack the tables: it shows their first rows, as one without scripts does. */
  if (typeof DecompressionStream === "undefined") return;
  for (const holder of document.querySelectorAll("[data-table]")) tables.push(new DataTable(holder));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      tables.find((table) => table.holder === entry.target).load();
    }
  }, { rootMargin: "400px" });
  for (const table of tables) seen.observe(table.holder);
  if (matchMedia("(max-width: 44rem)").matches) {
    for (const details of document.querySelectorAll("main details")) details.open = false;
  }
  for (const command of document.querySelectorAll(".command")) {
    const value = command.textContent;
    const button = make("button", { type: "button", class: "copy", text: "Copy", "aria-label": "Copy " + value });
    button.addEventListener("click", () => copied(value, button));
    command.after(button);
  }
  /* A link to a section opens it. */
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (!link || link.hash.includes("=")) return;
    const target = document.getElementById(link.hash.slice(1));
    const details = target && target.querySelector("details");
    if (details) details.open = true;
  });
  addEventListener("hashchange", () => {
    /* Going to a section is not the end of what is followed, unless nothing is named at all. */
    if (location.hash === "" || location.hash.includes("=")) follow();
  });
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("main details, .todo details")) details.open = true;
  });
  document.documentElement.classList.add("works");
  follow();
})();
