/**
 * Loaded before a server's program by `node --import`: changes its wall clock by the contents of the file `SKEW_FILE`,
 * milliseconds and optionally a rate, which it reads repeatedly. The monotonic clock is unchanged.
 */
import { readFileSync } from 'node:fs';

const READ_PERIOD_MS = 50;
const RealDate = Date;
const file = process.env.SKEW_FILE;
let offsetMs = 0;
let rate = 1;
let sinceMs = RealDate.now();

function look(path: string): void {
  const [offset = 0, pace = 1] = readFileSync(path, 'utf8').trim().split(' ').map(Number);
  // The file was read while it was being replaced.
  if (Number.isNaN(offset) || Number.isNaN(pace) || (offset === offsetMs && pace === rate)) return;
  offsetMs = offset;
  rate = pace;
  sinceMs = RealDate.now();
}

function now(): number {
  const wallMs = RealDate.now();
  return Math.floor(wallMs + offsetMs + (wallMs - sinceMs) * (rate - 1));
}

if (file !== undefined) {
  look(file);
  setInterval(look, READ_PERIOD_MS, file).unref();
  globalThis.Date = new Proxy(RealDate, {
    construct: (target, args: unknown[]) =>
      Reflect.construct(target, args.length === 0 ? [now()] : args) as Date,
    get: (target, property, receiver) => (property === 'now' ? now : Reflect.get(target, property, receiver)),
  });
}
