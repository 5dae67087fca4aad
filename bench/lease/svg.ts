import type { Chart, Point, Series } from './chart.ts';
import { type Scale, scaleOf } from './scale.ts';

const WIDTH = 720;
const HEIGHT = 420;
const LEFT = 76;
const RIGHT = 20;
const TITLE_BASELINE = 24;
const LEGEND_BASELINE = 48;
const LEGEND_LINE = 18;
const BOTTOM = 56;
/** The assumed width of a letter in the legend, as no font can be measured here. */
const LETTER_WIDTH = 6.6;
const LEGEND_GAP = 18;
const MARKER = 4;
/** The share of a category's width that its bars use. */
const BARS_SHARE = 0.7;
const BAR_WIDTH_MAX = 80;
const SERIES_MAX = 6;

/** Readable on light and dark backgrounds, and by people who do not distinguish red and green. */
const STYLE = `
  text { font: 12px system-ui, sans-serif; fill: #57606a }
  .title { font-size: 14px; font-weight: 600 }
  .grid { stroke: #8c959f; stroke-opacity: .25 } .axis { stroke: #8c959f }
  .reference { stroke: #8c959f; stroke-dasharray: 5 4 } .spread { stroke: #57606a; stroke-width: 1.5 }
  .named { paint-order: stroke; stroke: #ffffff; stroke-width: 4; stroke-linejoin: round }
  .line { fill: none; stroke-width: 2 }
  .c0 { fill: #0072b2; stroke: #0072b2 } .c1 { fill: #d55e00; stroke: #d55e00 } .c2 { fill: #009e73; stroke: #009e73 }
  .c3 { fill: #cc79a7; stroke: #cc79a7 } .c4 { fill: #b08800; stroke: #b08800 } .c5 { fill: #6e7781; stroke: #6e7781 }
  .line.c0, .line.c1, .line.c2, .line.c3, .line.c4, .line.c5 { fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #adbac7 } .spread { stroke: #adbac7 } .named { stroke: #0d1117 }
    .c0 { fill: #56b4e9; stroke: #56b4e9 } .c1 { fill: #f0883e; stroke: #f0883e } .c2 { fill: #3fb68b; stroke: #3fb68b }
  }
`;

/**
 * Draws a chart as an SVG document without external fonts or scripts.
 *
 * @throws RangeError if there are no values, or more than six series
 */
export function chartSvg(chart: Chart): string {
  if (chart.series.length > SERIES_MAX) throw new RangeError(`At most ${SERIES_MAX} series fit a figure`);
  const legend = legendOf(chart.series);
  const top = LEGEND_BASELINE + legend.lines * LEGEND_LINE;
  const bottom = HEIGHT - BOTTOM;
  const points = chart.series.flatMap((series) => series.points);
  const heights = points.flatMap(({ y, low, high }) => [y, low ?? y, high ?? y]);
  const y = scaleOf(chart.y, [...heights, ...chart.references.map((reference) => reference.y)], bottom, top);
  const body =
    chart.kind === 'lines' ? linesOf(chart, y, top, bottom) : barsOf(chart, chart.categories, y, bottom);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" role="img">`,
    `<title>${escaped(chart.title)}</title>`,
    `<style>${STYLE}</style>`,
    text(LEFT, TITLE_BASELINE, chart.title, 'start', 'title'),
    legend.svg,
    ...y.ticks.map(
      (tick) =>
        line('grid', LEFT, y.place(tick), WIDTH - RIGHT, y.place(tick)) +
        text(LEFT - 8, y.place(tick) + 4, tickText(tick), 'end'),
    ),
    `<text transform="translate(16 ${(top + bottom) / 2}) rotate(-90)" text-anchor="middle">${escaped(chart.y.label)}</text>`,
    line('axis', LEFT, bottom, WIDTH - RIGHT, bottom),
    body,
    ...chart.references.map(
      ({ label, y: value }) =>
        line('reference', LEFT, y.place(value), WIDTH - RIGHT, y.place(value)) +
        text(WIDTH - RIGHT, y.place(value) - 5, label, 'end', 'named'),
    ),
    '</svg>',
    '',
  ].join('\n');
}

function linesOf(chart: Extract<Chart, { kind: 'lines' }>, y: Scale, top: number, bottom: number): string {
  const positions = chart.series.flatMap((series) => series.points.map((point) => point.x));
  const x = scaleOf(chart.x, positions, LEFT + 12, WIDTH - RIGHT - 12);
  const ticks = x.ticks.map(
    (tick) =>
      line('grid', x.place(tick), top, x.place(tick), bottom) +
      text(x.place(tick), bottom + 18, tickText(tick), 'middle'),
  );
  const drawn = chart.series.map(({ points }, index) => {
    const places = points.map((point) => ({ point, at: x.place(point.x), height: y.place(point.y) }));
    const path = places.map(({ at, height }) => `${pixel(at)},${pixel(height)}`).join(' ');
    const markers = places.map(
      ({ point, at, height }) =>
        spread(point, at, y) +
        // Markers of very many points would overlap.
        (points.length > 40 ? '' : marker(index, at, height)),
    );
    return `<polyline class="line c${index}" points="${path}"/>${markers.join('')}`;
  });
  const label = text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, chart.x.label, 'middle');
  return [...ticks, label, ...drawn].join('\n');
}

function barsOf(chart: Chart, categories: readonly string[], y: Scale, bottom: number): string {
  const wide = (WIDTH - RIGHT - LEFT) / categories.length;
  const bar = Math.min(BAR_WIDTH_MAX, (wide * BARS_SHARE) / chart.series.length);
  const names = categories.map((name, place) =>
    text(LEFT + wide * (place + 0.5), bottom + 18, name, 'middle'),
  );
  const bars = chart.series.flatMap(({ points }, index) =>
    points.map((point) => {
      const left = LEFT + wide * (point.x + 0.5) + bar * (index - chart.series.length / 2);
      const height = y.place(point.y);
      const rectangle = `<rect class="c${index}" fill-opacity=".75" x="${pixel(left + 1)}" y="${pixel(height)}" width="${pixel(bar - 2)}" height="${pixel(Math.max(0, bottom - height))}"/>`;
      const above = Math.min(height, y.place(point.high ?? point.y));
      return (
        rectangle +
        spread(point, left + bar / 2, y) +
        text(left + bar / 2, above - 5, tickText(Number(point.y.toPrecision(3))), 'middle', 'named')
      );
    }),
  );
  return [...names, ...bars].join('\n');
}

/** A line from the smallest to the largest run. */
function spread({ low, high }: Point, at: number, y: Scale): string {
  if (low === undefined || high === undefined) return '';
  return `<line class="spread" x1="${pixel(at)}" y1="${pixel(y.place(low))}" x2="${pixel(at)}" y2="${pixel(y.place(high))}"/>`;
}

/** Shapes differ, too, for prints without colors. */
function marker(index: number, x: number, y: number): string {
  const corners = (offsets: readonly (readonly [number, number])[]): string =>
    `<polygon class="c${index}" points="${offsets.map(([right, down]) => `${pixel(x + right * MARKER)},${pixel(y + down * MARKER)}`).join(' ')}"/>`;
  switch (index % 4) {
    case 0:
      return `<circle class="c${index}" cx="${pixel(x)}" cy="${pixel(y)}" r="${MARKER}"/>`;
    case 1:
      return corners([
        [-1, -1],
        [1, -1],
        [1, 1],
        [-1, 1],
      ]);
    case 2:
      return corners([
        [0, -1.3],
        [1.2, 1],
        [-1.2, 1],
      ]);
    default:
      return corners([
        [0, -1.4],
        [1.4, 0],
        [0, 1.4],
        [-1.4, 0],
      ]);
  }
}

function legendOf(series: readonly Series[]): { readonly svg: string; readonly lines: number } {
  const parts: string[] = [];
  let at = LEFT;
  let lines = 1;
  for (const [index, { name }] of series.entries()) {
    const wide = name.length * LETTER_WIDTH + 2 * MARKER + 8;
    if (at > LEFT && at + wide > WIDTH - RIGHT) {
      at = LEFT;
      lines++;
    }
    const baseline = LEGEND_BASELINE + (lines - 1) * LEGEND_LINE;
    parts.push(marker(index, at + MARKER, baseline - 4), text(at + 2 * MARKER + 6, baseline, name, 'start'));
    at += wide + LEGEND_GAP;
  }
  return { svg: parts.join(''), lines };
}

function line(style: string, x1: number, y1: number, x2: number, y2: number): string {
  return `<line class="${style}" x1="${pixel(x1)}" y1="${pixel(y1)}" x2="${pixel(x2)}" y2="${pixel(y2)}"/>`;
}

function text(x: number, y: number, content: string, anchor: 'start' | 'middle' | 'end', style = ''): string {
  const named = style === '' ? '' : ` class="${style}"`;
  return `<text${named} x="${pixel(x)}" y="${pixel(y)}" text-anchor="${anchor}">${escaped(content)}</text>`;
}

function tickText(value: number): string {
  return value.toLocaleString('en-US', { maximumFractionDigits: 6 });
}

function pixel(value: number): string {
  return String(Math.round(value * 10) / 10);
}

function escaped(content: string): string {
  return content.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
