import { assert } from '../../../../base/assert.ts';

/** Bytes as latin1; null where there is no such name. */
export type Contents = string | null;

/** What a judge of one run needs of it. */
export interface OneWriterRun {
  nowNs(): number;
  violation(text: string): void;
  /** When all servers lost their power. */
  readonly lossesNs: readonly number[];
  /** A program has learned that something survives a loss of power. */
  synced?(): void;
}

/** How a change reaches readers. */
export interface ChangeKind {
  /** Readers see it as a whole: a rename, an unlink. Else they may see parts of it while it is under way. */
  readonly isAtomic?: boolean;
  /** It may still be acknowledged ahead of the cluster, which may drop it, at this true time, unless its name was synced. */
  readonly isAhead?: (atNs: number) => boolean;
  /** The contents were synced before they got the name, so that a sync of the name is all they need. */
  readonly hasSyncedContents?: boolean;
  /** When the contents were begun to be written that got the name by this change, and were not synced before. */
  readonly writtenNs?: number;
  /** It keeps the rest of what is there, which is of an earlier version where a loss of power has taken others meanwhile. */
  readonly isPart?: boolean;
  /** The file loses its name, and is changed further without it: a reader that opened it before reads these changes, too. */
  readonly isOpen?: boolean;
}

/** A change that is under way. One that fails may happen at any time, or in parts. */
export interface Change {
  /** @param contents where they are known at the end only */
  done(contents?: Contents): void;
  failed(): void;
}

interface Version {
  /** Undefined until it is known. */
  contents: Contents | undefined;
  readonly calledNs: number;
  readonly kind: ChangeKind;
  returnedNs: number;
  hasFailed: boolean;
  /** When a sync of the contents, of the name, returned that was called after the change. */
  contentsSyncedNs: number;
  nameSyncedNs: number;
}

/**
 * A file that one program changes and any program reads: a regular register whose versions are in the order of their
 * making, and atomic for readers that follow each other. Judges each read at once.
 */
export class OneWriterFile {
  readonly name: string;
  readonly #run: OneWriterRun;
  readonly #versions: Version[];
  /** Newest versions that reads have shown, with the end of each read. */
  readonly #seen: { readonly returnedNs: number; readonly index: number; readonly isGone: () => boolean }[] =
    [];

  constructor(name: string, run: OneWriterRun) {
    this.name = name;
    this.#run = run;
    this.#versions = [
      {
        ...{ contents: null, calledNs: -1, returnedNs: -1, kind: {}, hasFailed: false },
        ...{ contentsSyncedNs: -1, nameSyncedNs: -1 },
      },
    ];
  }

  /** A change may be under way, or have failed: what is there is not known to its writer. */
  get isUncertain(): boolean {
    return this.#versions.at(-1)?.returnedNs === Number.POSITIVE_INFINITY;
  }

  /** A change is called. @param contents undefined where they are not known before its end; there is a name then */
  begin(contents: Contents | undefined, kind: ChangeKind = {}): Change {
    assert(!this.isUncertain, `${this.name}: one change at a time`);
    const version: Version = {
      ...{ contents, calledNs: this.#run.nowNs(), kind, returnedNs: Number.POSITIVE_INFINITY },
      ...{ hasFailed: false, contentsSyncedNs: Number.POSITIVE_INFINITY },
      nameSyncedNs: Number.POSITIVE_INFINITY,
    };
    this.#versions.push(version);
    return {
      done: (known = contents) => {
        version.contents = known;
        version.returnedNs = this.#run.nowNs();
      },
      failed: () => {
        version.hasFailed = true;
      },
    };
  }

  /** A sync has returned 0 that was called when every change was over that is over now. */
  synced(what: 'contents' | 'name'): void {
    const nowNs = this.#run.nowNs();
    for (const version of this.#versions) {
      if (version.returnedNs === Number.POSITIVE_INFINITY) continue;
      const hasContents = what === 'contents' || version.kind.hasSyncedContents === true;
      version.nameSyncedNs = Math.min(version.nameSyncedNs, nowNs);
      if (hasContents) version.contentsSyncedNs = Math.min(version.contentsSyncedNs, nowNs);
    }
    this.#run.synced?.();
  }

  /**
   * A read that was called at `calledNs` has returned.
   *
   * @param slackNs by how much an answer may be outdated
   * @param isGone whether what was read may be gone that was not stored: the mount that read and changed it has ended since
   */
  read(
    reader: string,
    calledNs: number,
    contents: Contents,
    slackNs = 0,
    isGone: () => boolean = () => false,
  ): void {
    const fromNs = calledNs - slackNs;
    const nowNs = this.#run.nowNs();
    const low = this.#lowest(fromNs, nowNs);
    const open = this.#versions.slice(low);
    const index = open.findIndex((version) => version.contents === contents);
    if (index >= 0) {
      this.#seen.push({ returnedNs: nowNs, index: low + index, isGone });
      return;
    }
    const isPartial = open.some((_, place) => this.#mayBePartial(low + place, fromNs, nowNs));
    if (isPartial && !this.#contradictsName(contents === null, low, fromNs)) return;
    this.#refuse(`${reader} reads ${shown(contents)}`, calledNs, open);
  }

  /** A question whether the name is there, which was called at `calledNs`, is answered. */
  presence(reader: string, calledNs: number, isThere: boolean, slackNs = 0): void {
    const fromNs = calledNs - slackNs;
    const nowNs = this.#run.nowNs();
    const low = this.#lowest(fromNs, nowNs);
    const open = this.#versions.slice(low);
    if (open.some(({ contents }) => (contents !== null) === isThere)) return;
    if (open.some((_, place) => this.#mayBePartial(low + place, fromNs, nowNs))) return;
    this.#refuse(`${reader} finds ${isThere ? 'the name' : 'no such name'}`, calledNs, open);
  }

  /** @returns the place of the earliest version that may be shown */
  #lowest(fromNs: number, nowNs: number): number {
    const firm = this.#versions.findLastIndex((version) => this.#isFirm(version, fromNs, nowNs));
    const seen = this.#seen.filter(
      ({ returnedNs, index, isGone }) =>
        returnedNs < fromNs && !this.#lossBetween(returnedNs, nowNs) && !(this.#isUnended(index) && isGone()),
    );
    return Math.max(firm, ...seen.map(({ index }) => index));
  }

  /** The change has failed, or is under way: a mount may not have stored it. */
  #isUnended(index: number): boolean {
    return this.#versions[index]?.returnedNs === Number.POSITIVE_INFINITY;
  }

  #refuse(what: string, calledNs: number, open: readonly Version[]): void {
    const expected = open.map(describe).join('; ');
    this.#run.violation(
      `${this.name}: ${what} from ${ms(calledNs)} to ${ms(this.#run.nowNs())}, and there may be: ${expected}`,
    );
  }

  /** What readers see may be the contents of no version. */
  #mayBePartial(index: number, fromNs: number, nowNs: number): boolean {
    const version = this.#versions[index] as Version;
    const { kind, returnedNs, contentsSyncedNs } = version;
    if (this.#mayLackOthers(index, fromNs, nowNs)) return true;
    // A program that reads in several calls may see a part of it between two of them.
    if ((kind.isPart === true || kind.isOpen === true) && returnedNs >= fromNs) return true;
    if (kind.isAtomic !== true) return returnedNs >= fromNs || this.#mayBeLost(version, fromNs, nowNs);
    if (kind.writtenNs === undefined || contentsSyncedNs < fromNs) return false;
    return this.#lossBetween(kind.writtenNs, Math.min(nowNs, contentsSyncedNs));
  }

  /** A loss of power, before the change was over, may have taken earlier changes that were not synced. */
  #mayLackOthers(index: number, fromNs: number, nowNs: number): boolean {
    const [before, version] = [this.#versions[index - 1], this.#versions[index]];
    if (before === undefined || version?.kind.isPart !== true) return false;
    const untilNs = Math.min(nowNs, version.returnedNs);
    return this.#mayBeLost(before, fromNs, untilNs) || this.#mayLackOthers(index - 1, fromNs, untilNs);
  }

  /** No later read may show an earlier version. */
  #isFirm(version: Version, fromNs: number, nowNs: number): boolean {
    if (version.returnedNs >= fromNs) return false;
    if (version.nameSyncedNs >= fromNs && version.kind.isAhead?.(fromNs) === true) return false;
    return !this.#mayBeLost(version, fromNs, nowNs);
  }

  /** All servers lost their power, and no sync that was called after the change has returned. */
  #mayBeLost(
    { calledNs, contents, contentsSyncedNs, nameSyncedNs }: Version,
    fromNs: number,
    nowNs: number,
  ): boolean {
    const syncedNs = contents === null ? nameSyncedNs : contentsSyncedNs;
    return syncedNs >= fromNs && this.#lossBetween(calledNs, Math.min(nowNs, syncedNs));
  }

  #lossBetween(fromNs: number, untilNs: number): boolean {
    return this.#run.lossesNs.some((atNs) => atNs >= fromNs && atNs <= untilNs);
  }

  /** Of a name that was synced it is certain whether it is there, if no later change is of that. */
  #contradictsName(isAbsent: boolean, low: number, fromNs: number): boolean {
    const named = this.#versions.findLastIndex(({ nameSyncedNs }) => nameSyncedNs < fromNs);
    const madeNs = this.#versions[1]?.calledNs ?? 0;
    if (named <= 0 && this.#lossBetween(madeNs, this.#run.nowNs())) return false;
    const known = this.#versions.slice(Math.max(named, low));
    return known.every(({ contents }) => contents !== undefined && (contents === null) !== isAbsent);
  }
}

function describe({ contents, calledNs, returnedNs, hasFailed, contentsSyncedNs }: Version): string {
  const isOver = returnedNs < Number.POSITIVE_INFINITY;
  const end = hasFailed ? 'failed' : isOver ? `to ${ms(returnedNs)}` : 'under way';
  const isSynced = contentsSyncedNs < Number.POSITIVE_INFINITY && contents !== null;
  const synced = isSynced ? `, synced ${ms(contentsSyncedNs)}` : '';
  return `${shown(contents)} (from ${ms(calledNs)} ${end}${synced})`;
}

function ms(ns: number): string {
  return `${(ns / 1e6).toFixed(3)} ms`;
}

function shown(contents: Contents | undefined): string {
  if (contents === undefined) return 'something';
  if (contents === null) return 'no such name';
  return JSON.stringify(
    contents.length <= 40 ? contents : `${contents.slice(0, 30)}… ${contents.length} bytes`,
  );
}
