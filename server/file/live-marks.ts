import type { FileId, ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { Position } from '../../replica/epoch.ts';
import type { Attributes, Command, LiveMark, Preservation } from '../../wire/catalog-api.ts';
import { atLeastTrue } from '../process/bounded.ts';
import type { FileStore } from '../storage/store.ts';
import type { FilePrimary, MarkLimits } from './file-primary.ts';

const PRESERVE_ATTEMPTS_MAX = 3;

type Preserved = NonNullable<Extract<Command, { kind: 'open-for-write' }>['preserved']>;

interface LiveMarksParts {
  readonly self: ServerId;
  readonly store: FileStore;
  readonly catalog: {
    command(command: Command): Promise<unknown>;
    durably(command: Command): Promise<unknown>;
  };
  /** Resolves when this server, which orders changes of the file, is its primary. */
  becomePrimary(file: FileId): Promise<unknown>;
  isAt(server: ServerId, file: FileId, position: Position): Promise<boolean>;
}

/** Sets a file's live mark in the catalog before it is written, and first preserves what its snapshots show. */
export class LiveMarks {
  readonly #parts: LiveMarksParts;

  constructor(parts: LiveMarksParts) {
    this.#parts = parts;
  }

  /** Sets the mark. If a snapshot shows the current contents, has them preserved first, as another file's. */
  async set(primary: FilePrimary, file: FileId, mark: LiveMark, growTo?: number): Promise<MarkLimits> {
    const { catalog } = this.#parts;
    const growth = growTo === undefined ? {} : { growTo };
    const command = {
      kind: 'open-for-write',
      inode: file,
      mark,
      ...growth,
      preserves: true,
      restricts: true,
    } as const;
    let answer = await catalog.command(command);
    for (let wish = preserveIn(answer); wish !== null; wish = preserveIn(answer)) {
      // Until this server is primary, no majority is known to have its epoch.
      await this.#parts.becomePrimary(file);
      const preserved = await this.#preserve(primary, wish);
      // If the catalog lost where the preserved contents are, garbage collection would remove them.
      answer = await catalog.durably({ ...command, preserved, contents: wish.contents });
    }
    return markedIn(answer);
  }

  /**
   * Has the contents preserved, until a majority has the other file at the position it has here. A replica that was
   * caught up meanwhile acknowledges the operation without having applied it, and applies that of the next attempt. A
   * replica of the other file in a later epoch proves nothing: a majority without the contents may have begun it.
   */
  async #preserve(primary: FilePrimary, wish: Preservation): Promise<Preserved> {
    const { store, self, isAt } = this.#parts;
    const as = wish.inode as FileId;
    for (let attempt = 1; attempt <= PRESERVE_ATTEMPTS_MAX; attempt++) {
      const outcome = await primary.preserve(wish);
      if (outcome !== 'preserved') return outcome;
      const record = store.record(as);
      if (record === null) break;
      const { view, installed, seq } = record;
      const others = view.members.filter((member) => member !== self);
      const position = { epoch: installed, seq };
      const answers = others.map((member) => isAt(member, as, position));
      if (await atLeastTrue(answers, majority(view.members.length) - 1))
        return { inode: wish.inode, view: { number: view.number, members: [...view.members] } };
    }
    return 'again';
  }
}

function markedIn(result: unknown): MarkLimits {
  const { attributes } = (result ?? {}) as { readonly attributes?: Partial<Attributes> };
  const { allowedBytes = Infinity, changedNs = null, flags = [] } = attributes ?? {};
  return { allowedBytes, changedNs, appendOnly: flags.includes('append-only') };
}

function preserveIn(result: unknown): Preservation | null {
  return ((result ?? {}) as { readonly preserve?: Preservation }).preserve ?? null;
}
