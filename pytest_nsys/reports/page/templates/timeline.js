// Zoom, pan and hover of the timelines, and the keys that walk through the page. Without it they are pictures.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const UNITS = [["ns", 1], ["us", 1e3], ["ms", 1e6], ["s", 1e9]];
  const CLOSEST_NS = 100, NEAR_PX = 4, CHARACTER_PX = 6.6, FEWEST_CHARACTERS = 4, FEWEST_OF_MORE = 6;

  const trimmed = (number, decimals) => {
    const [whole, rest] = number.toFixed(decimals).split(".");
    const kept = (rest || "").replace(/0+$/, "");
    return kept ? whole + "." + kept : whole;
  };

  const time = (ns) => {
    const [word, scale] = UNITS.find(([, each]) => Math.abs(ns) < 999.5 * each) || UNITS[3];
    const value = ns / scale;
    const room = 3 - String(Math.trunc(Math.abs(value))).length;
    return trimmed(value, scale === 1 ? 0 : Math.max(0, room)) + " " + word;
  };

  const make = (name, attributes, text) => {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
  };

  const niceStep = (span, most) => {
    let step = 10 ** Math.floor(Math.log10(span / most));
    for (const factor of [1, 2, 5, 10]) if (span / (step * factor) <= most) return step * factor;
    return step * 10;
  };

  class Timeline {
    constructor(figure) {
      this.figure = figure;
      this.data = JSON.parse(figure.querySelector("script").textContent);
      this.plot = figure.querySelector(".plot");
      this.readout = figure.querySelector(".readout");
      this.said = [...this.readout.childNodes];
      this.axis = figure.querySelector(".axis");
      this.lanes = this.data.sides.flatMap((side) => {
        const known = (side.gaps ? [side.gaps] : []).concat(side.lanes);
        return known.map((lane) => ({ lane, side, at: this.starts(lane) }));
      });
      figure.querySelectorAll("svg.lane, svg.gaps").forEach((svg, i) => {
        this.lanes[i].svg = svg;
        this.lanes[i].words = svg.nextElementSibling;
      });
      const banded = this.data.sides.filter(({ bands }) => bands.length);
      this.bands = [...figure.querySelectorAll("svg.bands")].map((svg, i) => ({ svg, side: banded[i] }));
      this.patterns = [...figure.querySelectorAll("pattern")];
      this.reset();
      this.listen();
    }

    starts(lane) {
      let now = 0;
      return lane.s.map((step) => (now += step));
    }

    listen() {
      const { plot, figure } = this;
      plot.tabIndex = 0;
      const tools = figure.querySelector(".tools");
      tools.hidden = false;
      tools.addEventListener("click", (event) => {
        const what = event.target.dataset.do;
        if (what === "in") this.zoom(0.5);
        if (what === "out") this.zoom(2);
        if (what === "left") this.pan(-0.25);
        if (what === "right") this.pan(0.25);
        if (what === "reset") this.reset();
      });
      figure.addEventListener("keydown", (event) => this.key(event));
      plot.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      plot.addEventListener("pointerdown", (event) => this.grab(event));
      plot.addEventListener("pointermove", (event) => this.move(event));
      plot.addEventListener("pointerup", () => { this.held = null; });
      plot.addEventListener("pointercancel", () => { this.held = null; });
      plot.addEventListener("dblclick", () => this.zoomToSelection());
      plot.addEventListener("pointerleave", (event) => {
        this.aimed = false;
        if (!this.held && event.pointerType === "mouse") this.show(null); // a finger leaves when it has tapped
      });
      addEventListener("scroll", () => { this.aimed = false; }, { passive: true });
      new ResizeObserver(() => this.draw()).observe(plot);
    }

    // That of the first lane that is not folded.
    get box() {
      const boxes = this.lanes.map(({ svg }) => svg.getBoundingClientRect());
      return boxes.find(({ width }) => width) || boxes[0];
    }

    reset() { this.from = 0; this.span = this.data.length; this.select(null); this.show(null); this.draw(); }

    zoom(factor, at) {
      const center = at === undefined ? this.from + this.span / 2 : at;
      const span = Math.min(this.data.length, Math.max(CLOSEST_NS, this.span * factor));
      this.from = center - (center - this.from) * (span / this.span);
      this.span = span;
      this.draw();
    }

    pan(share) { this.from += share * this.span; this.draw(); }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const { target, key } = event;
      if (key === "Enter" && target !== this.plot) return; // buttons and folds have it
      const box = target.closest(".scroll");
      if (key.startsWith("Arrow") && box && box.scrollWidth > box.clientWidth) return;
      const does = {
        ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2),
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), Home: () => this.reset(),
        ArrowUp: () => this.step(-1, 0), ArrowDown: () => this.step(1, 0),
        n: () => this.step(0, 1), p: () => this.step(0, -1), Enter: () => this.near(),
        Escape: () => { this.select(null); this.show(null); },
      }[key];
      if (does) { event.preventDefault(); does(); }
    }

    wheel(event) {
      // A page that scrolls by under a pointer that rests goes on scrolling; one that was moved here means the picture.
      if (!this.aimed && document.activeElement !== this.plot && !event.ctrlKey) return;
      if (event.deltaY > 0 && this.span === this.data.length && !event.ctrlKey) return; // nothing left to zoom out of
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return this.pan(event.deltaX / this.box.width);
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.at(event));
    }

    // The time at which an event points.
    at(event) {
      const box = this.box;
      return this.from + ((event.clientX - box.left) / box.width) * this.span;
    }

    grab(event) {
      if (event.button) return;
      this.held = { x: event.clientX, from: this.from, ns: this.at(event) };
      this.plot.setPointerCapture(event.pointerId);
      this.move(event);
    }

    // A mouse that drags selects a range, a finger moves the picture.
    move(event) {
      this.aimed = true;
      const box = this.box;
      if (this.held && Math.abs(event.clientX - this.held.x) > 2) {
        if (event.pointerType === "mouse" && !event.shiftKey) return this.select([this.held.ns, this.at(event)]);
        this.from = this.held.from - ((event.clientX - this.held.x) / box.width) * this.span;
        return this.draw();
      }
      const isAimedAt = ({ svg }) => {
        const { top, bottom } = svg.getBoundingClientRect();
        return event.clientY >= top && event.clientY <= bottom;
      };
      const band = this.bands.find(isAimedAt);
      if (band) return this.showStage(band.side, this.at(event), event);
      const own = this.lanes.find(isAimedAt);
      this.show(own ? this.find(own, this.at(event), (NEAR_PX / box.width) * this.span) : null, event);
    }

    // A range of time, whose length is said; null: none.
    select(ends) {
      const inside = (ns) => Math.min(Math.max(0, ns), this.data.length);
      this.selected = ends && ends.map(inside).sort((a, b) => a - b);
      if (!this.selected) return this.drawSelection();
      this.show(null);
      const [start, end] = this.selected;
      this.readout.classList.add("on");
      this.readout.textContent = `selected ${time(end - start)}, from ${time(start)} to ${time(end)} · double click zooms to it`;
      this.drawSelection();
    }

    zoomToSelection() {
      if (!this.selected) return;
      const [start, end] = this.selected;
      this.from = start;
      this.span = Math.max(CLOSEST_NS, end - start);
      this.select(null);
      this.show(null);
      this.draw();
    }

    drawSelection() {
      if (this.picked) this.picked.remove();
      this.picked = null;
      if (!this.selected) return;
      const box = this.box, whole = this.plot.getBoundingClientRect();
      const [left, right] = this.selected.map((ns) => {
        const x = ((ns - this.from) / this.span) * box.width;
        return box.left - whole.left + Math.min(Math.max(0, x), box.width);
      });
      this.picked = document.createElement("div");
      this.picked.className = "picked";
      this.picked.style.left = `${left}px`;
      this.picked.style.width = `${right - left}px`;
      this.plot.append(this.picked);
    }

    find(own, ns, near) {
      const { at, lane } = own;
      let low = 0, high = at.length;
      while (low < high) { const middle = (low + high) >> 1; if (at[middle] <= ns) low = middle + 1; else high = middle; }
      let best = null, apart = near;
      for (let i = Math.max(0, low - 3); i < Math.min(at.length, low + 1); i++) {
        const gap = Math.max(at[i] - ns, ns - at[i] - lane.d[i], 0);
        if (gap === 0 || gap < apart) { best = { own, i }; apart = gap; }
      }
      return best;
    }

    step(lanes, kernels) {
      const now = this.shown;
      if (!now) {
        const own = this.lanes.find(({ at, lane }) => at.length && !lane.k);
        return this.show(own && (this.find(own, this.from, 0) || this.next(own)));
      }
      if (kernels) {
        const i = Math.min(now.own.at.length - 1, Math.max(0, now.i + kernels));
        return this.show({ own: now.own, i });
      }
      const ns = now.own.at[now.i], count = this.lanes.length;
      for (let k = this.lanes.indexOf(now.own) + lanes; k >= 0 && k < count; k += lanes) {
        if (this.lanes[k].at.length) return this.show(this.find(this.lanes[k], ns, Infinity));
      }
    }

    // The kernel that is shown as wide as half of the picture; the first one where none is.
    near() {
      if (!this.shown) return this.step(0, 0);
      const { own, i } = this.shown;
      this.span = Math.min(this.data.length, Math.max(CLOSEST_NS, 2 * own.lane.d[i]));
      this.from = own.at[i] + (own.lane.d[i] - this.span) / 2;
      this.draw();
    }

    next(own) {
      const i = own.at.findIndex((start) => start >= this.from);
      return { own, i: i < 0 ? own.at.length - 1 : i };
    }

    // The same kernel of the other side: the same of as many with its name and stage on the lane of that name.
    partner({ own: { lane, side }, i }) {
      const other = this.lanes.find((each) => each.side !== side && each.lane.name === lane.name && !each.lane.k);
      if (!other || lane.k) return null;
      const same = (one, of) => one.n.flatMap((name, k) =>
        of.names[name] === side.names[lane.n[i]] && of.stages[one.g[k]] === side.stages[lane.g[i]] ? [k] : []);
      const mine = same(lane, side), theirs = same(other.lane, other.side);
      if (mine.length !== theirs.length) return null;
      return { own: other, i: theirs[mine.indexOf(i)] };
    }

    // How long its partner lasts: "base 0.97 ms, +51%", seen from the head; from the base "head 1.46 ms, +51%".
    compared(found) {
      const partner = this.partner(found);
      if (!partner) return "";
      const own = found.own.lane.d[found.i], other = partner.own.lane.d[partner.i];
      const [base, head] = found.own.side.name === "base" ? [own, other] : [other, own];
      const percent = base ? trimmed((100 * (head - base)) / base, Math.abs(head - base) < base / 10 ? 1 : 0) : "";
      const sign = head < base ? "−" : "+";
      return `${partner.own.side.name} ${time(other)}${base ? `, ${sign}${percent.replace("-", "")}%` : ""}`;
    }

    tooltip(words, event) {
      if (this.tip) this.tip.remove();
      this.tip = null;
      if (!words || !event || event.pointerType !== "mouse") return;
      const tip = this.tip = document.createElement("div"), [name, ...rest] = words;
      tip.className = "tooltip";
      tip.append(Object.assign(document.createElement("b"), { textContent: name }));
      for (const word of rest) tip.append(Object.assign(document.createElement("div"), { textContent: word }));
      this.plot.append(tip);
      const whole = this.plot.getBoundingClientRect(), x = event.clientX - whole.left, y = event.clientY - whole.top;
      const room = whole.width - tip.offsetWidth;
      tip.style.left = `${Math.max(0, Math.min(x + 12, room))}px`;
      tip.style.top = `${y + 18}px`;
    }

    show(found, event) {
      this.shown = found;
      this.readout.classList.toggle("on", Boolean(found) || Boolean(this.selected));
      this.tooltip(null);
      if (this.mark) this.mark.remove();
      this.arrow(null);
      if (!found) {
        if (!this.selected) this.readout.replaceChildren(...this.said);
        return;
      }
      const { own: { lane, side, svg, at }, i } = found;
      const start = at[i], length = lane.d[i], end = start + length;
      if (end < this.from || start > this.from + this.span) {
        this.from = start + length / 2 - this.span / 2;
        this.draw();
      }
      this.mark = make("path", { class: "mark" });
      svg.append(this.mark);
      this.outline();
      const when = [lane.name, `starts at ${time(start)}`, `lasts ${time(length)}`];
      const words = lane.k ? this.why(lane, side, i).concat(when) : [side.names[lane.n[i]], side.stages[lane.g[i]], ...when];
      if (side.name) words.unshift(side.name);
      if (lane.k) this.arrow(this.shown);
      else if (lane.b.includes(i)) words.push("barrier: in line with compute");
      else if (!lane.c) words.push(lane.x[i] ? `${time(lane.x[i])} exposed (${trimmed(lane.x[i], 0)} ns)` : "hidden");
      const compared = this.compared(found);
      if (compared) words.push(compared);
      this.readout.textContent = words.join(" · ");
      const first = lane.k ? words[0] : side.names[lane.n[i]];
      this.tooltip([first, lane.k ? time(length) : [time(length), compared].filter(Boolean).join(" · ")], event);
    }

    // The stage for which the compute at this time was launched.
    showStage(side, ns, event) {
      this.show(null);
      const band = side.bands.find(([start, length]) => start <= ns && ns < start + length);
      if (!band) return;
      const [start, length, stage] = band, words = [side.stages[stage], `lasts ${time(length)}`];
      this.readout.classList.add("on");
      this.readout.textContent = [side.name, ...words, `starts at ${time(start)}`].filter(Boolean).join(" · ");
      this.tooltip(words, event);
    }

    why(lane, side, i) {
      const named = (name, stage) => side.names[name] + (stage < 0 || side.stages[stage] === "none" ? "" : ` (${side.stages[stage]})`);
      const kind = lane.kinds[lane.k[i]];
      if (lane.m[i]) return [kind, `${lane.m[i]} short gaps together`];
      const [waiting, stage, producer, producerStage] = lane.w[i];
      const words = producer < 0 ? [kind] : [`${kind}: ${named(producer, producerStage)}`];
      return words.concat(waiting < 0 ? "no compute follows" : `before ${named(waiting, stage)}`);
    }

    // From the end of the producer to the start of the kernel that waited, over the lanes.
    arrow(found) {
      if (this.arrowed) this.arrowed.remove();
      this.arrowed = null;
      const ends = found && found.own.lane.a && found.own.lane.a[found.i];
      if (!ends) return;
      const own = this.lanes.filter(({ side, lane }) => side === found.own.side && !lane.k);
      const whole = this.plot.getBoundingClientRect(), box = this.box;
      const point = (n, ns) => {
        const { top, height } = own[n].svg.getBoundingClientRect();
        const x = box.left - whole.left + ((ns - this.from) / this.span) * box.width;
        return [Math.min(Math.max(x, box.left - whole.left), box.right - whole.left), top - whole.top + height / 2];
      };
      const [x1, y1] = point(ends[0], ends[1]), [x2, y2] = point(ends[2], ends[3]);
      const over = y1 === y2 ? y1 - 18 : (y1 + y2) / 2, down = y1 > y2 ? -1 : 1;
      this.arrowed = make("svg", { class: "arrow", "aria-hidden": "true" });
      this.arrowed.append(
        make("circle", { class: "tip", cx: x1, cy: y1, r: 3 }),
        make("path", { class: "shaft", d: `M${x1} ${y1}C${x1} ${over} ${x2} ${over} ${x2} ${y2 - 7 * down}` }),
        make("path", { class: "tip", d: `M${x2} ${y2}l-5 ${-9 * down}h10z` }),
      );
      this.plot.append(this.arrowed);
    }

    outline() {
      if (!this.shown) return;
      const { own: { lane, at }, i } = this.shown;
      const width = Math.max(lane.d[i], this.span / 900);
      this.mark.setAttribute("d", `M${at[i]} 0h${width}v20h-${width}z`);
    }

    draw() {
      this.from = Math.min(Math.max(0, this.from), this.data.length - this.span);
      const view = `${this.from} 0 ${this.span} 20`;
      for (const { svg } of this.lanes) svg.setAttribute("viewBox", view);
      const { width, height } = this.box;
      const unstretched = `scale(${this.span / (width || 900)} ${20 / (height || 20)})`;
      for (const pattern of this.patterns) pattern.setAttribute("patternTransform", unstretched);
      if (this.mark) this.outline();
      if (this.arrowed) this.arrow(this.shown);
      this.drawSelection();
      for (const lane of this.lanes) if (lane.words) this.write(lane);
      for (const { svg, side } of this.bands) this.label(svg, side, view);
      this.ticks();
    }

    percent(ns) { return ((100 * (ns - this.from)) / this.span).toFixed(3) + "%"; }

    // The names of the kernels that have room for one.
    write({ lane, side, at, words }) {
      const width = this.box.width, to = this.from + this.span, found = [];
      for (let i = 0; i < at.length && at[i] < to; i++) {
        const start = Math.max(at[i], this.from), end = Math.min(at[i] + lane.d[i], to);
        const room = Math.floor((((end - start) / this.span) * width - 8) / CHARACTER_PX);
        if (room < FEWEST_CHARACTERS) continue;
        const name = side.names[lane.n[i]].replace(/^nccl(Dev)?Kernel_/, "");
        if (name.length > room && room < FEWEST_OF_MORE) continue;
        const x = this.percent(start + (4 / width) * this.span);
        found.push(make("text", { x, y: 14 }, name.length > room ? name.slice(0, room - 1) + "…" : name));
      }
      words.replaceChildren(...found);
    }

    label(svg, side, view) {
      const [shapes, words] = svg.querySelectorAll("svg, g");
      shapes.setAttribute("viewBox", view);
      const width = this.box.width;
      words.replaceChildren();
      for (const [start, length, stage] of side.bands) {
        const from = Math.max(start, this.from), to = Math.min(start + length, this.from + this.span);
        if (((to - from) / this.span) * width < 7 * side.stages[stage].length + 6) continue;
        words.append(make("text", { x: this.percent((from + to) / 2), y: 13 }, side.stages[stage]));
      }
    }

    ticks() {
      const step = niceStep(this.span, Math.max(2, Math.floor(this.box.width / 70)));
      const [word, scale] = UNITS.findLast(([, each]) => step >= each || each === 1);
      this.axis.replaceChildren();
      for (let ns = Math.ceil(this.from / step) * step; ns <= this.from + this.span; ns += step) {
        const x = this.percent(ns), share = (ns - this.from) / this.span;
        const anchor = share < 0.04 ? "start" : share > 0.94 ? "end" : "middle";
        this.axis.append(make("line", { x1: x, x2: x, y1: 0, y2: 5 }));
        this.axis.append(make("text", { x, y: 17, "text-anchor": anchor }, `${trimmed(ns / scale, 3)} ${word}`));
      }
    }
  }

  // The sections of the page, which the brackets walk through.
  const walk = (event) => {
    const by = { "[": -1, "]": 1 }[event.key];
    if (!by || event.ctrlKey || event.metaKey) return;
    const all = [...document.querySelectorAll("section.root")];
    const focused = all.indexOf(document.activeElement.closest("section.root"));
    const above = all.findLastIndex((section) => section.getBoundingClientRect().top < innerHeight / 3);
    const now = focused < 0 ? Math.max(0, above) : focused;
    const next = all[Math.min(all.length - 1, Math.max(0, now + by))];
    if (!next) return;
    next.scrollIntoView();
    next.focus({ preventScroll: true });
  };
  document.addEventListener("keydown", walk);

  for (const figure of document.querySelectorAll("figure.timeline:has(script)")) new Timeline(figure);
})();
