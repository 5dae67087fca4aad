/** The words of the script language of the lease layer: cells and kinds of messages. */
import type { CellId } from '../../base/ids.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import { ServerWords } from './script-words.ts';

export type Kind = LeaseMessage['kind'];

const KINDS: readonly Kind[] = [
  ...(['read', 'query', 'write', 'ack-read', 'ack-write', 'nack-read', 'nack-write'] as const),
  ...(['refused-read', 'refused-write', 'wrong-view', 'learn', 'release'] as const),
];

/** One line of a script of the lease layer. */
export class LeaseWords extends ServerWords {
  readonly #cells: number;

  constructor(place: string, line: string, servers: number, cells: number) {
    super(place, line, servers);
    this.#cells = cells;
  }

  isCell(): boolean {
    return /^\d+$/.test(this.peek());
  }

  /** A cell; the first one if none is named. */
  cell(): CellId {
    return (this.isCell() ? this.natural('a cell', 1, this.#cells) : 1) as CellId;
  }

  /** All kinds of messages that follow; none means all. */
  kinds(): Kind[] {
    const kinds: Kind[] = [];
    while (!this.isOver()) kinds.push(this.oneOf('a kind of message', KINDS));
    return kinds;
  }
}
