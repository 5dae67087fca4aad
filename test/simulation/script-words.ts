/** The words that all scripts share: numbers, durations, servers; and the error of a mistaken script. */
import type { ServerId } from '../../base/ids.ts';

/** A mistake in a script. The message begins with file and line. */
export class ScriptError extends Error {
  override readonly name = 'ScriptError';
}

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** @returns the milliseconds of `500ms`, `4s`, `10m`, `1h`, signed or not; null if it is no duration */
export function durationParse(text: string): number | null {
  const match = /^([+-]?\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text);
  return match === null ? null : Number(match[1]) * (UNITS[match[2] as string] as number);
}

/** One line of a script, read from left to right. Each mistake names the line. */
export class Words {
  readonly place: string;
  readonly #words: readonly string[];
  #at = 0;

  constructor(place: string, line: string) {
    this.place = place;
    this.#words = line.split(/\s+/).filter((word) => word !== '');
  }

  fail(what: string): never {
    throw new ScriptError(`${this.place}: ${what}`);
  }

  isOver(): boolean {
    return this.#at >= this.#words.length;
  }

  peek(): string {
    return this.#words[this.#at] ?? '';
  }

  next(wanted: string): string {
    const word = this.#words[this.#at++];
    return word ?? this.fail(`${wanted} is missing`);
  }

  /** Skips the next word if it is this one. @returns whether it was */
  skip(word: string): boolean {
    if (this.peek() !== word) return false;
    this.#at++;
    return true;
  }

  expect(word: string): void {
    const found = this.next(`"${word}"`);
    if (found !== word) this.fail(`"${word}" is expected, not "${found}"`);
  }

  end(): void {
    if (!this.isOver()) this.fail(`nothing is expected after that, but there is "${this.peek()}"`);
  }

  oneOf<Word extends string>(wanted: string, words: readonly Word[]): Word {
    const found = this.next(wanted);
    const word = words.find((known) => known === found);
    return word ?? this.fail(`${wanted} is ${words.join(' or ')}, not "${found}"`);
  }

  natural(wanted: string, min = 0, max = Number.MAX_SAFE_INTEGER): number {
    const text = this.next(wanted);
    const value = /^\d+$/.test(text) ? Number(text) : NaN;
    if (value >= min && value <= max) return value;
    return this.fail(`${wanted} is a whole number from ${min} to ${max}, not "${text}"`);
  }

  fraction(wanted: string): number {
    const text = this.next(wanted);
    const value = Number(text);
    return value >= 0 && value <= 1 ? value : this.fail(`${wanted} is from 0 to 1, not "${text}"`);
  }

  durationMs(wanted: string): number {
    const text = this.next(wanted);
    const ms = durationParse(text);
    return ms !== null && ms >= 0 ? ms : this.fail(`${wanted} reads like 500ms or 4s, not "${text}"`);
  }

  /** `+50ms`, `-3s`, `0ms`. */
  offsetMs(wanted: string): number {
    const text = this.next(wanted);
    return durationParse(text) ?? this.fail(`${wanted} reads like +50ms or -50ms, not "${text}"`);
  }
}

/** A line that names servers by one letter each. */
export class ServerWords extends Words {
  readonly #names: readonly string[];

  constructor(place: string, line: string, servers: number) {
    super(place, line);
    this.#names = Array.from({ length: servers }, (_, i) => String.fromCharCode(97 + i));
  }

  server(): ServerId {
    return this.#named(this.next('a server'));
  }

  /** `abc`, or `*` for all. */
  group(): ServerId[] {
    return this.#group(this.next('servers'));
  }

  isLink(): boolean {
    return this.peek().includes('->');
  }

  /** `a->b`, `ab->c`, `*->*`: from each server on the left to each on the right. */
  link(): { from: ServerId[]; to: ServerId[] } {
    const text = this.next('a link');
    const match = /^([a-z]+|\*)->([a-z]+|\*)$/.exec(text);
    if (match === null) return this.fail(`a link reads like a->b, ab->c or *->*, not "${text}"`);
    return { from: this.#group(match[1] as string), to: this.#group(match[2] as string) };
  }

  /** The rest of the line, one link or more, as pairs. */
  links(): [ServerId, ServerId][] {
    const pairs: [ServerId, ServerId][] = [];
    do {
      const { from, to } = this.link();
      for (const a of from) for (const b of to) if (a !== b) pairs.push([a, b]);
    } while (this.isLink());
    return pairs;
  }

  #group(text: string): ServerId[] {
    const names = text === '*' ? this.#names : [...text];
    return names.map((name) => this.#named(name));
  }

  #named(name: string): ServerId {
    if (this.#names.includes(name)) return name as ServerId;
    return this.fail(`there is no server "${name}", only ${this.#names.join(', ')}`);
  }
}
