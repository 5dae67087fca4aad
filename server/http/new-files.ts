import type { Readable } from 'node:stream';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { assertBytesAllowed, assertInodeAllowed } from '../../catalog/quota.ts';
import type { Attributes, CommandResults, Expectation, Place } from '../../wire/catalog-api.ts';
import type { FileState } from '../../wire/http-api.ts';
import {
  nullIfOutdated,
  type StoredContents,
  WHOLE_BYTES_MAX,
  type WholeFiles,
} from '../file/whole-files.ts';
import type { Gateway } from '../gateway.ts';
import { changeUnder, currentOf } from './conditional-change.ts';
import { type Conditions, checkForChange, etagOf, standingOf } from './conditions.ts';
import { DigestCheck } from './digests.ts';
import type { Directories } from './directories.ts';
import { KeyedCommands, type RequestKey } from './idempotency.ts';
import { displayPath, type FilePath, volumePath } from './path.ts';
import type { Removal } from './removal.ts';
import { inUseUntilNs, receivedOf, type Uploads } from './upload.ts';

const FILE_MODE = 0o644;

export interface NewFileOptions {
  /** 0644 where absent; where the file takes the place of another, that one's. */
  readonly mode?: number;
  /** Of a file that comes in pieces: what its upload notes, in base64, and until when it waits for the next one. */
  readonly note?: string;
  readonly untilNs?: string;
}

/** A file that has been given its name. */
export interface NamedFile {
  readonly attributes: Attributes;
  readonly etag: string;
  /** The name is new. */
  readonly created: boolean;
  /** The server that created the file with contents, and orders its changes without a lease; null for another file, and where it has no replica. */
  readonly creator: ServerId | null;
}

/** What a client has sent for a file: all of its bytes, which nothing but this server has, or the state of a staged file without a name. */
export type Received =
  | { readonly kind: 'whole'; readonly parent: Attributes; readonly bytes: Buffer }
  | {
      readonly kind: 'staged';
      readonly state: Pick<FileState, 'file' | 'sizeBytes'>;
      /** The client may ask for its name once more after a refusal. */
      readonly isUpload?: true;
    };

/** With these a staged file gets no name: it is of no use any more. */
const REFUSALS: ReadonlySet<ErrorCode> = new Set(['quota-exceeded', 'precondition-failed']);
/** How the catalog refuses to give contents a name: others have the name by now, or its directory is gone. */
const NAMELESS: ReadonlySet<ErrorCode> = new Set([
  ...REFUSALS,
  'exists',
  'not-found',
  'is-directory',
  'not-directory',
]);
/** Such a file is collected in the next round. */
const LONG_AGO_NS = '0';

export interface ReceiveLimits {
  /** How long the file will be, where the client waits for an answer before it sends the contents. */
  readonly announcedBytes?: number | null;
  /** The length of the body, as far as it is known. */
  readonly lengthBytes?: number;
  /** A longer file is staged. */
  readonly wholeBytesMax?: number;
}

export interface NewFilesParts {
  readonly uploads: Uploads;
  readonly directories: Directories;
  /** Null: each file is staged. */
  readonly wholes: WholeFiles | null;
}

/**
 * Files replace others as a whole: readers see the old file or the new one, and a client that breaks off has changed nothing.
 *
 * A small file is created with contents: a majority has them, then one command of the catalog creates the file under its name. A larger one,
 * one that comes in pieces, a copy, and files of the policies `all` and `read-only` are staged: their contents go to a file without a name
 * piece by piece, as its primary orders them, so that no server has all of them in memory; a last command gives it the name.
 */
export class NewFiles {
  readonly #gateway: Gateway;
  readonly #uploads: Uploads;
  readonly #directories: Directories;
  readonly #wholes: WholeFiles | null;

  constructor(gateway: Gateway, { uploads, directories, wholes }: NewFilesParts) {
    this.#gateway = gateway;
    this.#uploads = uploads;
    this.#directories = directories;
    this.#wholes = wholes;
  }

  /** Refuses early what would be refused at the end, and makes a staged file, of the volume and with the owner of the directory that it is for. */
  async begin(
    path: FilePath,
    conditions: Conditions,
    options: NewFileOptions = {},
    announcedBytes: number | null = null,
    execute: 'command' | 'durably' = 'command',
  ): Promise<Attributes> {
    const parent = await this.#judge(path, conditions, announcedBytes);
    return this.#stage(path, parent, options, execute);
  }

  /**
   * Refuses early what would be refused at the end, and receives the contents of a file.
   *
   * @throws ServiceError where the client went away, the digests are others, or a write failed
   */
  async receive(
    path: FilePath,
    conditions: Conditions,
    body: Readable,
    check: DigestCheck,
    { announcedBytes = null, lengthBytes = 0, wholeBytesMax = WHOLE_BYTES_MAX }: ReceiveLimits,
  ): Promise<Received> {
    const parent = await this.#judge(path, conditions, announcedBytes);
    const received = receivedOf(body);
    try {
      return await this.#received(path, parent, received, check, { lengthBytes, wholeBytesMax });
    } finally {
      // After an error the iterator would keep its listener on the body, and the rest of the body could not be drained.
      await received.return(undefined);
    }
  }

  async #received(
    path: FilePath,
    parent: Attributes,
    received: AsyncGenerator<Buffer>,
    check: DigestCheck,
    { lengthBytes, wholeBytesMax }: Required<Omit<ReceiveLimits, 'announcedBytes'>>,
  ): Promise<Received> {
    const bytesMax = Math.min(WHOLE_BYTES_MAX, wholeBytesMax);
    const isTried = this.#wholes !== null && lengthBytes <= bytesMax;
    const begun = isTried ? await this.#uploads.counted(() => beginningOf(received, bytesMax)) : NOTHING_READ;
    if (begun.isWhole) {
      const bytes = Buffer.concat(begun.parts);
      check.update(bytes);
      check.check();
      return { kind: 'whole', parent, bytes };
    }
    const file = await this.#stage(path, parent);
    const filled = this.#uploads.store(file, joined(begun.parts, received), check);
    return { kind: 'staged', state: await this.#orDiscard(file, filled) };
  }

  /** @returns the directory of the path @throws ServiceError for what would be refused at the end */
  async #judge(path: FilePath, conditions: Conditions, announcedBytes: number | null): Promise<Attributes> {
    if (path.names.length === 0)
      throw new ServiceError('is-directory', `${displayPath(path)} is a directory`);
    const [current, parent] = await Promise.all([
      // A link at the end is followed here as it is by the command that gives the name.
      currentOf(this.#gateway, path, { follow: true, live: true }),
      this.#directories.parentOf(path),
    ]);
    if (current?.kind === 'directory') {
      throw new ServiceError('is-directory', `${displayPath(path)} is a directory`);
    }
    checkForChange(conditions, standingOf(current), displayPath(path));
    if (announcedBytes !== null) await this.#assertRoom(path.volume, current, announcedBytes);
    return parent;
  }

  async #stage(
    { volume }: FilePath,
    { uid, gid }: Attributes,
    options: NewFileOptions = {},
    execute: 'command' | 'durably' = 'command',
  ): Promise<Attributes> {
    const kept = { untilNs: inUseUntilNs(this.#gateway.world.wallMs()) };
    const command = {
      kind: 'create-orphan',
      volume,
      mode: FILE_MODE,
      uid,
      gid,
      ...kept,
      ...options,
    } as const;
    return (await this.#gateway[execute](command)).attributes;
  }

  /**
   * @param removal of the file that is replaced
   * @throws ServiceError `quota-exceeded` where the volume has no room for the file now; it is decided when it gets its name
   */
  async #assertRoom(
    name: string,
    replaced: Attributes | null,
    bytes: number,
    removal: Removal = {},
  ): Promise<void> {
    const { volume } = await this.#gateway.queryCatalog({ kind: 'volume', name });
    const isKept = volume.trashMs > 0 && removal.trash !== false;
    const isFreed = replaced !== null && replaced.links === 1 && !isKept;
    if (replaced === null) assertInodeAllowed(volume);
    assertBytesAllowed(volume, bytes, isFreed ? (replaced.allowedBytes ?? replaced.sizeBytes) : 0);
  }

  /** Work on an upload that comes in pieces. @throws ServiceError `busy` where too many uploads go on */
  counted<Result>(work: () => Promise<Result>): Promise<Result> {
    return this.#uploads.counted(work);
  }

  /** The contents are all there, and safe from a loss of power, when it resolves. */
  finish(file: Attributes, sizeBytes: number): Promise<FileState> {
    return this.#uploads.finish(file, sizeBytes);
  }

  /** Fills a staged file with what another file has. @param keepsTime it gets the modification time of the other one, too */
  async copy(file: Attributes, source: Attributes, keepsTime: boolean): Promise<FileState> {
    const state = await this.#orDiscard(file, this.#uploads.copy(file, source));
    const { modifiedNs } = source;
    // Before it has its name: whoever finds the time finds the contents.
    if (keepsTime) await this.#gateway.command({ kind: 'set-attributes', inode: file.inode, modifiedNs });
    return state;
  }

  /**
   * Gives the file its name, where the conditions still hold in that moment.
   *
   * @param key of the request, under which any server finds what became of it
   * @param removal of the file that loses the name
   */
  async name(
    path: FilePath,
    received: Received,
    conditions: Conditions,
    key: RequestKey | null,
    removal: Removal = {},
  ): Promise<NamedFile> {
    const place = { volume: path.volume, path: volumePath(path.names) };
    const commands = await KeyedCommands.of(this.#gateway, key);
    // What another server has done meanwhile under this key is not done again: others may have the name by now.
    if (commands.result !== null) return namedFile(commands.result as Replaced);
    const change: Change = { path, place, conditions, commands, removal };
    if (received.kind === 'staged' && received.isUpload) return this.#nameStaged(received.state.file, change);
    if (received.kind === 'staged') return this.#nameOrDiscard(received.state.file, change);
    const named = await this.#nameWhole(received, change);
    if (named !== null) return named;
    const file = await this.#stage(path, received.parent);
    const { file: inode } = await this.#uploads.store(file, joined([received.bytes]), new DigestCheck([]));
    return this.#nameOrDiscard(inode, change);
  }

  async #nameOrDiscard(inode: number, change: Change): Promise<NamedFile> {
    try {
      return await this.#nameStaged(inode, change);
    } catch (error) {
      if (error instanceof ServiceError && REFUSALS.has(error.code)) await this.#collectSoon(inode);
      throw error;
    }
  }

  /** What was received is not to get a name any more. Nothing happens where it has one. */
  async discard(received: Received): Promise<void> {
    if (received.kind === 'staged') await this.#collectSoon(received.state.file);
  }

  async #orDiscard<Result>({ inode }: Attributes, filling: Promise<Result>): Promise<Result> {
    try {
      return await filling;
    } catch (error) {
      await this.#collectSoon(inode);
      throw error;
    }
  }

  async #collectSoon(inode: number): Promise<void> {
    const command = { kind: 'keep-orphan', inode, untilNs: LONG_AGO_NS } as const;
    await this.#gateway.command(command).catch((error: unknown) => {
      // It is collected after the time that it was kept for.
      if (!(error instanceof ServiceError)) throw error;
    });
  }

  async #nameStaged(
    inode: number,
    { path, place, conditions, commands, removal }: Change,
  ): Promise<NamedFile> {
    const result = await changeUnder(this.#gateway, path, conditions, true, (expect) =>
      this.#gateway.durably({ kind: 'replace', place, inode, expect, ...removal }, commands.next()),
    );
    return namedFile(result);
  }

  /** @returns null where the file is to be staged; nothing of it has the name then, nor will have */
  async #nameWhole(
    { parent: { uid, gid }, bytes }: Extract<Received, { kind: 'whole' }>,
    { path, place, conditions, commands, removal }: Change,
  ): Promise<NamedFile | null> {
    let stored = null as StoredContents | null;
    const change = async (expect: Expectation): Promise<CommandResults['replace-with-contents'] | null> => {
      // Behind the first judgement of the conditions and of the quota: what they refuse leaves no contents behind.
      stored ??= await this.#stored(path, bytes, removal);
      if (stored === null) return null;
      const file = { mode: FILE_MODE, uid, gid, ...stored };
      const command = { kind: 'replace-with-contents', place, ...file, expect, ...removal } as const;
      return this.#gateway.durably(command, commands.next()).catch((error: unknown) => {
        // The volume's files are stored otherwise by now, or the catalog's primary is of an earlier release.
        if (error instanceof ServiceError && error.code === 'bad-request') return null;
        return nullIfOutdated(error);
      });
    };
    const result = await changeUnder(this.#gateway, path, conditions, true, change).catch(
      async (error: unknown) => {
        if (error instanceof ServiceError && NAMELESS.has(error.code)) await this.#void(stored);
        throw error;
      },
    );
    if (result === null || result.attributes.inode !== stored?.inode) await this.#void(stored);
    if (result === null) return null;
    // An earlier attempt under the same key may have created another one.
    if (result.attributes.inode !== stored?.inode) return namedFile(result);
    this.#wholes?.named(stored.inode);
    const self = this.#gateway.services.status.id;
    return namedFile(result, stored.replicas.includes(self) ? self : null);
  }

  /**
   * Contents are not to get a name any more. The catalog decides it: a command that names them, and arrives late, is refused then, and
   * where one has been executed nothing happens. No loss of power takes that back: the contents may be gone by then.
   */
  async #void(stored: StoredContents | null): Promise<void> {
    if (stored === null) return;
    const { owner, inode } = stored;
    await this.#gateway.durably({ kind: 'void-inodes', owner, inodes: [inode] }).catch((error: unknown) => {
      // The number is void after a while, as where a member of the catalog runs an earlier release.
      if (!(error instanceof ServiceError)) throw error;
    });
  }

  /** @throws ServiceError `quota-exceeded` where the volume has no room for them: they would stay until their number is void */
  async #stored(path: FilePath, bytes: Buffer, removal: Removal): Promise<StoredContents | null> {
    if (this.#wholes === null) return null;
    if (await this.#wholes.mayExceedQuota(path.volume, bytes.length)) {
      const replaced = await currentOf(this.#gateway, path, { follow: true, live: false });
      await this.#assertRoom(path.volume, replaced, bytes.length, removal);
    }
    return this.#wholes.store(path.volume, bytes);
  }

  /**
   * What an earlier request with this key has stored; null where none has, as far as the catalog remembers. It survives a
   * loss of power, although the earlier request may have failed before its flush.
   */
  async recall(key: RequestKey): Promise<NamedFile | null> {
    const { result } = await KeyedCommands.of(this.#gateway, key);
    // A key names one method and URL: what it has left behind is of this kind.
    return result === null ? null : namedFile(result as Replaced);
  }
}

type Replaced = CommandResults['replace' | 'replace-with-contents'];

/** What is to be given a name, and how. */
interface Change {
  readonly path: FilePath;
  readonly place: Place;
  readonly conditions: Conditions;
  readonly commands: KeyedCommands;
  readonly removal: Removal;
}

export function sizeOf(received: Received): number {
  return received.kind === 'whole' ? received.bytes.length : received.state.sizeBytes;
}

const NOTHING_READ: Beginning = { parts: [], isWhole: false };

interface Beginning {
  readonly parts: readonly Buffer[];
  /** Nothing follows. */
  readonly isWhole: boolean;
}

/** Reads a body up to its end, or until there are more than `bytesMax`. */
async function beginningOf(body: AsyncGenerator<Buffer>, bytesMax: number): Promise<Beginning> {
  const parts: Buffer[] = [];
  for (let bytes = 0; bytes <= bytesMax; ) {
    const next = await body.next();
    if (next.done === true) return { parts, isWhole: true };
    parts.push(next.value);
    bytes += next.value.length;
  }
  return { parts, isWhole: false };
}

async function* joined(parts: readonly Buffer[], rest?: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  yield* parts;
  if (rest !== undefined) yield* rest;
}

function namedFile({ attributes, replaced }: Replaced, creator: ServerId | null = null): NamedFile {
  const etag = etagOf(attributes.inode, attributes.contents);
  return { attributes, etag, created: replaced === null, creator };
}
