/** The words of the script language: durations, servers, links, cells; and where a script is mistaken. */
import type { CellId, ServerId } from '../../base/ids.ts';
import type { LeaseMessage } from '../../lease/messages.ts';

/** A script says something that cannot be played. The message begins with file and line. */
export class ScriptError extends Error {
  override readonly name = 'ScriptError';
}

export type Kind = LeaseMessage['kind'];

const KINDS: readonly Kind[] = [
  'read',
  'query',
  'write',
  'ack-read',
  'ack-write',
  'nack-read',
  'nack-write',
  'refused-read',
  'refused-write',
  'wrong-view',
  'learn',
  'release',
];

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** @returns milliseconds of `500ms`, `4s`, `10m`, `1h`, signed or not; null if it is none */
export function durationParse(text: string): number | null {
  const match = /^([+-]?\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text);
  return match === null ? null : Number(match[1]) * (UNITS[match[2] as string] as number);
}

export function durationText(ms: number): string {
  return `${ms}ms`;
}

/** One line of a script, read from left to right. Every mistake names the line. */
export class Words {
  readonly place: string;
  readonly #words: readonly string[];
  readonly #servers: number;
  readonly #cells: number;
  #at = 0;

  constructor(place: string, line: string, servers: number, cells: number) {
    this.place = place;
    this.#words = line.split(/\s+/).filter((word) => word !== '');
    this.#servers = servers;
    this.#cells = cells;
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

  /** Takes the next word if it is this one. */
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

  server(): ServerId {
    const name = this.next('a server');
    return this.#named(name);
  }

  /** `abc`, or `*` for all. */
  group(): ServerId[] {
    return this.#group(this.next('servers'));
  }

  isCell(): boolean {
    return /^\d+$/.test(this.peek());
  }

  /** A cell; the first one where none is named. */
  cell(): CellId {
    return (this.isCell() ? this.natural('a cell', 1, this.#cells) : 1) as CellId;
  }

  isLink(): boolean {
    return this.peek().includes('->');
  }

  /** `a->b`, `ab->c`, `*->*`: from any of the left to any of the right. */
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

  /** Kinds of messages, as many as follow; none means all. */
  kinds(): Kind[] {
    const kinds: Kind[] = [];
    while (!this.isOver()) kinds.push(this.oneOf('a kind of message', KINDS));
    return kinds;
  }

  #group(text: string): ServerId[] {
    const names = text === '*' ? this.#names() : [...text];
    return names.map((name) => this.#named(name));
  }

  #named(name: string): ServerId {
    if (this.#names().includes(name)) return name as ServerId;
    return this.fail(`there is no server "${name}", only ${this.#names().join(', ')}`);
  }

  #names(): string[] {
    return Array.from({ length: this.#servers }, (_, i) => String.fromCharCode(97 + i));
  }
}
