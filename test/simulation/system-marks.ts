/**
 * A file's mark in the catalog as a primary in a system simulation goes about it, in the steps in which `FilePrimary` and the file service do:
 * the mark before the first change, what snapshots show preserved before that, and `settling` before the mark ends.
 */
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import { endsInChange, inheritsMark } from '../../server/file/live-mark.ts';
import type { FileAttributes } from '../../server/storage/store.ts';
import type {
  Command,
  CommandResults,
  ContentVersion,
  LiveMark,
  Preservation,
} from '../../wire/catalog-api.ts';
import type { FileOperation } from '../../wire/file-operation.ts';
import type { Preserved } from './system-file.ts';
import { FILE } from './system-messages.ts';

/** How often contents are preserved under one number before another is asked for. */
const ATTEMPTS_MAX = 3;

type Told = NonNullable<Extract<Command, { kind: 'open-for-write' }>['preserved']>;

/** What the course needs of the server; each callback comes at most once, and never where the server ends before. */
export interface MarkParts {
  readonly self: ServerId;
  /** Counter of the epoch that is led from here. */
  readonly epoch: number;
  readonly inheritedFrom: { readonly counter: number } | null;
  attributes(): FileAttributes;
  orderedSeq(): number;
  /** Whether this server leads; where it only orders, it wants to from then on. */
  leads(): boolean;
  isMoving(): boolean;
  /** @see FileInCatalog.nextTurn */
  nextTurn(): number;
  submit(operation: FileOperation): void;
  /** @param done told whether all up to `seq` is committed; false where this server leads no more */
  committed(seq: number, done: (isSo: boolean) => void): void;
  flush(done: (flushed: boolean) => void): void;
  preserved(as: FileId): Preserved | null;
  holds(member: ServerId, as: FileId, done: (isSo: boolean) => void): void;
  ask(command: Command, done: (answer: unknown) => void): void;
  flushCatalog(done: () => void): void;
}

/** What a primary knows of the mark, for as long as its epoch lasts. */
export class MarkCourse {
  readonly #parts: MarkParts;
  #live: boolean;
  #unconfirmed: boolean;
  /** Asking that began before the last settling counts for nothing. */
  #asking: symbol | null = null;
  #turn = 0;
  /** As of the last change that was ordered. */
  #contents: ContentVersion;
  #isNameFlushed = false;
  #inFlight = 0;
  #whenIdle: (() => void)[] = [];
  #waiting: ((admitted: boolean) => void)[] = [];
  readonly #settlings: ((settled: boolean) => void)[] = [];
  #settling = false;
  #over = false;

  constructor(parts: MarkParts) {
    this.#parts = parts;
    const attributes = parts.attributes();
    this.#live = inheritsMark(attributes, parts.orderedSeq(), parts.inheritedFrom);
    this.#unconfirmed = this.#live;
    this.#contents = { epoch: attributes.versionEpoch, seq: attributes.versionSeq };
  }

  /** A change has got its place. */
  ordered(seq: number): void {
    this.#contents = { epoch: this.#parts.epoch, seq };
  }

  /** A change wants a place. @param go told whether it may have one; where not, it certainly has none */
  admit(go: (admitted: boolean) => void): void {
    if (this.#over) go(false);
    else if (this.#live) {
      if (this.#unconfirmed) this.#ask(() => undefined);
      go(true);
    } else {
      this.#waiting.push(go);
      this.#wake();
    }
  }

  /** The mark, and the file's entry, survive a loss of power. */
  flushName(done: () => void): void {
    if (this.#isNameFlushed) {
      done();
      return;
    }
    this.#parts.flushCatalog(() => {
      this.#isNameFlushed = true;
      done();
    });
  }

  began(): void {
    this.#inFlight++;
  }

  ended(): void {
    this.#inFlight--;
    if (this.#inFlight === 0) for (const go of this.#whenIdle.splice(0)) go();
  }

  #wake(): void {
    if (this.#waiting.length === 0 || this.#settling || this.#asking !== null || this.#over) return;
    const asking = Symbol();
    this.#asking = asking;
    this.#ask((marked) => {
      if (this.#asking !== asking) return;
      this.#asking = null;
      this.#live = marked;
      for (const go of this.#waiting.splice(0)) go(marked);
    });
  }

  #ask(done: (marked: boolean) => void): void {
    this.#unconfirmed = false;
    this.#turn = this.#parts.nextTurn();
    const mark: LiveMark = { epoch: this.#parts.epoch, turn: this.#turn };
    this.#open(mark, null, done);
  }

  #open(mark: LiveMark, preserved: Told | null, done: (marked: boolean) => void): void {
    const told = preserved === null ? {} : { preserved };
    const command: Command = { kind: 'open-for-write', inode: FILE, mark, preserves: true, ...told };
    this.#parts.ask(command, (answer) => {
      if (this.#over || answer instanceof ServiceError) {
        done(false);
        return;
      }
      const { preserve } = answer as CommandResults['open-for-write'];
      if (preserve !== undefined) {
        this.#preserve(preserve, 1, (outcome) => {
          if (outcome === null) done(false);
          else this.#open(mark, outcome, done);
        });
      } else {
        this.#isNameFlushed = false;
        if (preserved !== null) this.#parts.flushCatalog(() => done(!this.#over));
        else done(true);
      }
    });
  }

  #preserve(wish: Preservation, attempt: number, done: (outcome: Told | null) => void): void {
    const { submit, committed, orderedSeq, flush, isMoving, leads } = this.#parts;
    if (!leads()) {
      done(null);
      return;
    }
    const { epoch, seq } = this.#contents;
    if (epoch !== wish.contents.epoch || seq !== wish.contents.seq) {
      done('lost');
      return;
    }
    if (isMoving()) {
      done(null);
      return;
    }
    const as = wish.inode as FileId;
    submit({ kind: 'preserve', as, contents: wish.contents });
    committed(orderedSeq(), (isSo) => {
      if (!isSo) {
        done(null);
        return;
      }
      flush((flushed) => {
        const made = this.#parts.preserved(as);
        if (!flushed || this.#over || made === null) {
          done(null);
          return;
        }
        const { attributes, record } = made.state;
        if (attributes.versionEpoch !== epoch || attributes.versionSeq !== seq) {
          done('again');
          return;
        }
        const { number, members } = record.view;
        this.#areEnough(as, members, (enough) => {
          if (this.#over) done(null);
          else if (enough) done({ inode: as, view: { number, members: [...members] } });
          else if (attempt === ATTEMPTS_MAX) done('again');
          else this.#preserve(wish, attempt + 1, done);
        });
      });
    });
  }

  /** @param done told whether a majority has what is preserved, as soon as that is known */
  #areEnough(as: FileId, members: readonly ServerId[], done: (enough: boolean) => void): void {
    const others = members.filter((member) => member !== this.#parts.self);
    let count = 1;
    let left = others.length;
    let isOver = false;
    const look = (): void => {
      if (isOver || (count < majority(members.length) && left > 0)) return;
      isOver = true;
      done(count >= majority(members.length));
    };
    look();
    for (const member of others) {
      this.#parts.holds(member, as, (isSo) => {
        if (isSo) count++;
        left--;
        look();
      });
    }
  }

  /** @param done told whether the catalog knows all that this primary knows, and has ended the mark */
  settle(done: (settled: boolean) => void): void {
    if (this.#over) {
      done(false);
      return;
    }
    this.#live = false;
    this.#asking = null;
    this.#settlings.push(done);
    this.#settleNext();
  }

  #settleNext(): void {
    if (this.#settling) return;
    const done = this.#settlings.shift();
    if (done === undefined) {
      this.#wake();
      return;
    }
    this.#settling = true;
    const end = (settled: boolean): void => {
      if (this.#over) return;
      this.#settling = false;
      done(settled);
      this.#settleNext();
    };
    if (this.#inFlight === 0) this.#announce(end);
    else this.#whenIdle.push(() => this.#announce(end));
  }

  #announce(end: (settled: boolean) => void): void {
    if (this.#over) return;
    const { attributes, orderedSeq, submit, committed, ask } = this.#parts;
    if (endsInChange(attributes(), orderedSeq())) submit({ kind: 'settling' });
    committed(orderedSeq(), (isSo) => {
      if (!isSo) {
        end(false);
        return;
      }
      const { sizeBytes, versionEpoch, versionSeq } = attributes();
      const contents = { epoch: versionEpoch, seq: versionSeq };
      const mark = { epoch: this.#parts.epoch, turn: this.#turn };
      const file = { inode: FILE, sizeBytes, modifiedNs: String(versionSeq), contents, mark };
      ask({ kind: 'settle', files: [file] }, (answer) => end(!(answer instanceof ServiceError)));
    });
  }

  /** The epoch is led from here no more. */
  close(): void {
    this.#over = true;
    for (const go of this.#waiting.splice(0)) go(false);
    for (const done of this.#settlings.splice(0)) done(false);
  }
}
