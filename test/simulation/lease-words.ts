/** The words of the script language of the lease layer: servers, links, cells, kinds of messages. */
import type { CellId, ServerId } from '../../base/ids.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import { Words } from './script-words.ts';

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

/** One line of a script of the lease layer. */
export class LeaseWords extends Words {
  readonly #servers: number;
  readonly #cells: number;

  constructor(place: string, line: string, servers: number, cells: number) {
    super(place, line);
    this.#servers = servers;
    this.#cells = cells;
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
