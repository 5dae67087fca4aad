import { systemWorld } from '../../world/system-world.ts';
import { formatBytes } from './quantities.ts';

const DRAW_PERIOD_MS = 100;
const BAR_WIDTH = 30;

export function printLine(text: string): void {
  process.stdout.write(`${text}\n`);
}

export function printText(text: string): void {
  process.stdout.write(text);
}

export function printJson(value: unknown): void {
  printLine(JSON.stringify(value));
}

export function formatTable(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, index) => {
      widths[index] = Math.max(widths[index] ?? 0, cell.length);
    });
  }
  return rows.map((row) =>
    row
      .map((cell, index) => (index === row.length - 1 ? cell : cell.padEnd(widths[index] as number)))
      .join('  ')
      .trimEnd(),
  );
}

export function printTable(rows: readonly (readonly string[])[], header?: readonly string[]): void {
  for (const line of formatTable(header === undefined ? rows : [header, ...rows])) printLine(line);
}

/** @returns `name` with control characters replaced if the output is a terminal */
export function printable(name: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it is about
  return process.stdout.isTTY ? name.replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, '?') : name;
}

export class Progress {
  readonly #label: string;
  readonly #totalBytes: number | null;
  readonly #startMs = systemWorld.nowMs();
  readonly #shown = process.stderr.isTTY === true;
  #drawnMs = Number.NEGATIVE_INFINITY;

  constructor(label: string, totalBytes: number | null) {
    this.#label = label;
    this.#totalBytes = totalBytes;
  }

  update(bytes: number): void {
    const nowMs = systemWorld.nowMs();
    if (!this.#shown || nowMs - this.#drawnMs < DRAW_PERIOD_MS) return;
    this.#drawnMs = nowMs;
    const rate = formatBytes((bytes / Math.max(nowMs - this.#startMs, 1)) * 1000);
    const done = formatBytes(bytes);
    let text = `${this.#label}  ${done}  ${rate}/s`;
    if (this.#totalBytes !== null && this.#totalBytes > 0) {
      const fraction = Math.min(bytes / this.#totalBytes, 1);
      const bar = '#'.repeat(Math.round(fraction * BAR_WIDTH)).padEnd(BAR_WIDTH, '.');
      text = `${this.#label}  [${bar}] ${Math.floor(fraction * 100)} %  ${done} of ${formatBytes(this.#totalBytes)}  ${rate}/s`;
    }
    process.stderr.write(`\r\x1b[K${text}`);
  }

  end(): void {
    if (this.#shown && Number.isFinite(this.#drawnMs)) process.stderr.write('\r\x1b[K');
  }
}
