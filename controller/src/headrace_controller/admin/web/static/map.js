// Sites on the left, gateways on the right, a line a path: as wide as its flow, labelled with its round trip.

import { h, setAttribute, setText, svg } from "./dom.js";
import { path as pathText, percent } from "./format.js";
import { STATES } from "./states.js";

const WIDEST = 18;

export class SiteMap {
  constructor(store) {
    this.store = store;
    this.drawn = "";
    this.svg = svg("svg", { class: "map", role: "group", "aria-label": "Map of sites to gateways" });
    this.element = h("div", { class: "map-box" }, this.svg);
    this.width = 0;
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width !== this.width) {
        this.width = width;
        this.show();
      }
    }).observe(this.element);
  }

  show() {
    const { region } = this.store;
    if (!region || !this.width) return;
    const { sites, gateways } = region.status;
    const names = JSON.stringify([this.width, sites.map((site) => site.site), gateways.map((each) => each.id)]);
    if (names !== this.drawn) {
      this.drawn = names;
      this.draw(sites, gateways);
    }
    this.fill(region);
  }

  draw(sites, gateways) {
    const narrow = this.width < 560;
    const box = { site: narrow ? 104 : 168, gateway: narrow ? 98 : 132, height: 46, gap: narrow ? 26 : 20 };
    const rows = Math.max(sites.length, gateways.length, 1);
    const height = rows * (box.height + box.gap) + 8;
    setAttribute(this.svg, "viewBox", `0 0 ${this.width} ${height}`);
    setAttribute(this.svg, "width", this.width);
    setAttribute(this.svg, "height", height);
    const middle = (index, many) => (height * (index + 0.5)) / many;
    this.paths = new Map();
    this.sites = new Map();
    this.gateways = new Map();
    const lines = svg("g", { class: "lines" });
    const labels = svg("g", { class: "labels" });
    sites.forEach((site, at) => {
      gateways.forEach((gateway, to) => {
        // Side by side where they leave the site, so that one does not hide another.
        const aside = (to - (gateways.length - 1) / 2) * Math.min(9, 30 / gateways.length);
        const from = [box.site, middle(at, sites.length) + aside];
        const end = [this.width - box.gateway, middle(to, gateways.length)];
        this.paths.set(`${site.site}\n${gateway.id}`, this.drawPath(from, end, narrow, lines, labels));
      });
    });
    this.svg.replaceChildren(
      lines,
      labels,
      ...sites.map((site, at) => this.drawSite(site, 0, middle(at, sites.length) - box.height / 2, box.site, box.height)),
      ...gateways.map((gateway, at) =>
        this.drawGateway(gateway, this.width - box.gateway, middle(at, gateways.length) - box.height / 2, box.gateway, box.height),
      ),
    );
  }

  drawPath([x, y], [endX, endY], narrow, lines, labels) {
    const bend = (endX - x) * 0.45;
    const line = svg("path", { class: "flow", d: `M${x} ${y}C${x + bend} ${y} ${endX - bend} ${endY} ${endX} ${endY}` });
    const title = svg("title");
    line.append(title);
    lines.append(line);
    const t = narrow ? 0.45 : 0.32;
    const along = (p, q, r, s) => (1 - t) ** 3 * p + 3 * (1 - t) ** 2 * t * q + 3 * (1 - t) * t ** 2 * r + t ** 3 * s;
    const at = [along(x, x + bend, endX - bend, endX), along(y, y, endY, endY)];
    const flow = svg("tspan", { x: at[0], dy: narrow ? "-0.2em" : "0.35em" });
    const rtt = svg("tspan", narrow ? { x: at[0], dy: "1.15em" } : { dx: "0.6em" });
    const text = svg("text", { class: "path-label", x: at[0], y: at[1] }, flow, rtt);
    labels.append(text);
    return { line, title, text, flow, rtt };
  }

  drawSite(site, x, y, width, height) {
    const name = svg("text", { class: "name", x: x + 10, y: y + 18 });
    const said = svg("text", { class: "said", x: x + 10, y: y + 33 });
    const bars = STATES.map((state) => svg("rect", { "data-state": state, x, y: y + height - 5, height: 5, width: 0 }));
    const frame = svg("rect", { class: "box", x: x + 0.5, y: y + 0.5, width: width - 1, height: height - 1, rx: 3 });
    const link = svg("a", { href: `#/cells?site=${encodeURIComponent(site.site)}`, class: "node" }, frame, name, " ", said, bars);
    this.sites.set(site.site, { link, name, said, bars, x, width });
    return link;
  }

  drawGateway(gateway, x, y, width, height) {
    const name = svg("text", { class: "name", x: x + 10, y: y + 19 });
    const said = svg("text", { class: "said", x: x + 10, y: y + 35 });
    const frame = svg("rect", { class: "box", x: x + 0.5, y: y + 0.5, width: width - 1, height: height - 1, rx: 3 });
    const link = svg("a", { href: "#/pools", class: "node gateway" }, frame, name, " ", said);
    this.gateways.set(gateway.id, { link, name, said, width });
    return link;
  }

  fill({ status, paths }) {
    const connected = new Map(status.gateways.map((gateway) => [gateway.id, gateway.connected]));
    for (const path of paths) this.fillPath(path, connected.get(path.gateway));
    for (const site of status.sites) this.fillSite(site);
    for (const gateway of status.gateways) {
      const { link, name, said, width } = this.gateways.get(gateway.id);
      setText(name, cut(gateway.id, width));
      setText(said, gateway.connected ? (gateway.nacks ? `${gateway.nacks} refused` : "connected") : "not connected");
      setAttribute(link, "data-connected", String(gateway.connected));
      }
  }

  fillPath(path, connected) {
    const made = this.paths.get(`${path.site}\n${path.gateway}`);
    if (!made) return;
    const width = path.flow > 0 ? 1.5 + path.flow * WIDEST : 1;
    made.line.style.strokeWidth = `${width.toFixed(1)}px`;
    setAttribute(made.line, "data-flow", path.flow > 0 ? (connected ? "some" : "held") : "none");
    const flow = percent(path.flow, 0);
    const rtt = pathText(path.rtt_ms, path.jitter_ms);
    setText(made.title, `${path.site} to ${path.gateway}: ${flow} of its requests, ${rtt}`);
    // Labels for one gateway at a time: those of all would lie on each other.
    const chosen = path.gateway === this.store.hello.gateways[this.store.gateway];
    setAttribute(made.line, "data-chosen", String(chosen));
    setAttribute(made.text, "visibility", chosen ? null : "hidden");
    setText(made.flow, flow);
    setText(made.rtt, rtt);
  }

  fillSite(site) {
    const { link, name, said, bars, x, width } = this.sites.get(site.site);
    setText(name, cut(site.site, width));
    setText(said, `${site.ready} of ${site.cells} ready${site.cordoned ? ", cordoned" : ""}`);
    setAttribute(link, "data-ready", site.ready > 0 ? "some" : "none");
    let from = x;
    STATES.forEach((state, at) => {
      const part = site.cells ? ((site.states[state] ?? 0) / site.cells) * width : 0;
      setAttribute(bars[at], "x", from.toFixed(1));
      setAttribute(bars[at], "width", part.toFixed(1));
      from += part;
    });
  }
}

/** A name that fits a box, at about 7.5 px a character. */
function cut(name, width) {
  const most = Math.floor((width - 16) / 7.5);
  return name.length <= most ? name : `${name.slice(0, most - 1)}…`;
}
