import type { Readable } from 'node:stream';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { assertBytesAllowed, assertInodesAllowed, shownQuotas } from '../../catalog/quota.ts';
import type { Attributes, CommandResults, Expectation, NewXattrs, Place } from '../../wire/catalog-api.ts';
import type { FileState } from '../../wire/http-api.ts';
import {
  nullIfOutdated,
  type StoredContents,
  WHOLE_BYTES_MAX,
  type WholeFiles,
} from '../file/whole-files.ts';
import { displayPath, type FilePath, volumePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { attributesAt, changeUnderConditions, type Precondition } from './conditional-change.ts';
import { etagOf } from './conditions.ts';
import { type BodyCheck, DigestCheck } from './digests.ts';
import type { Directories } from './directories.ts';
import { KeyedCommands, type RequestKey } from './idempotency.ts';
import type { Removal } from './removal.ts';
import { type CopySource, inUseUntilNs, iterateBody, type Uploads } from './upload.ts';

const FILE_MODE = 0o644;

export interface NewFileOptions {
  /** Default: 0644, or that of the file that is replaced. */
  readonly mode?: number;
  /** For an upload in pieces: its state in base64, and when it expires, unless another piece arrives. */
  readonly note?: string;
  readonly untilNs?: string;
}

export interface NamedFile {
  readonly attributes: Attributes;
  readonly etag: string;
  readonly created: boolean;
  /** The server that created the file with contents, and orders its changes without a lease; else null. */
  readonly creator: ServerId | null;
}

/** What a client has sent: all bytes, in this server's memory only, or the state of a staged file. */
export type ReceivedFile =
  | { readonly kind: 'whole'; readonly parent: Attributes; readonly bytes: Buffer }
  | {
      readonly kind: 'staged';
      readonly state: Pick<FileState, 'file' | 'sizeBytes' | 'contents'>;
      /** The client may ask for the name again after a refusal. */
      readonly isUpload?: true;
    };

/** Extended attributes of a new file, which may describe its contents. */
export type XattrsOf = (file: Pick<Attributes, 'inode' | 'contents'>) => NewXattrs;

/** After these a staged file is discarded. */
const REFUSALS: ReadonlySet<ErrorCode> = new Set(['quota-exceeded', 'precondition-failed']);
/** Errors with which the catalog refuses to give contents a name. */
const NAME_REFUSALS: ReadonlySet<ErrorCode> = new Set([
  ...REFUSALS,
  'exists',
  'not-found',
  'is-directory',
  'not-directory',
]);
const NO_QUOTAS = { quotas: [] } as const;
/** The garbage collector removes a file with this time in its next round. */
const EXPIRED_NS = '0';

export interface ReceiveLimits {
  /** Length of the file, if the client waits for an answer before it sends the contents. */
  readonly announcedBytes?: number | null;
  /** Length of the body; 0 if unknown. */
  readonly lengthBytes?: number;
  /** A longer file is staged. */
  readonly wholeBytesMax?: number;
}

export interface NewFilesParts {
  readonly uploads: Uploads;
  readonly directories: Directories;
  readonly wholeFiles: WholeFiles | null;
}

/**
 * Replaces files as a whole: readers see the old file or the new one, and an interrupted client has changed nothing.
 *
 * A small file is created with contents: a majority stores them, then one command of the catalog creates the file under
 * its name. Larger files, uploads in pieces, copies, and files of the policies `all` and `read-only` are staged: an
 * unlinked file gets the contents piece by piece, as its primary orders them, so that no server holds all of them in
 * memory; a last command gives it the name.
 */
export class NewFiles {
  readonly #gateway: Gateway;
  readonly #uploads: Uploads;
  readonly #directories: Directories;
  readonly #wholeFiles: WholeFiles | null;

  constructor(gateway: Gateway, { uploads, directories, wholeFiles }: NewFilesParts) {
    this.#gateway = gateway;
    this.#uploads = uploads;
    this.#directories = directories;
    this.#wholeFiles = wholeFiles;
  }

  /** Creates a staged file with volume and owner of its directory. @throws early what giving it the name would throw */
  async createStaged(
    path: FilePath,
    precondition: Precondition,
    options: NewFileOptions = {},
    announcedBytes: number | null = null,
    execute: 'command' | 'durably' = 'command',
  ): Promise<Attributes> {
    const parent = await this.#checkTarget(path, precondition, announcedBytes);
    return this.#stage(path, parent, options, execute);
  }

  /** Receives a file's contents, and checks their digests. @throws early what giving them the name would throw */
  async receive(
    path: FilePath,
    precondition: Precondition,
    body: Readable,
    check: BodyCheck,
    { announcedBytes = null, lengthBytes = 0, wholeBytesMax = WHOLE_BYTES_MAX }: ReceiveLimits,
  ): Promise<ReceivedFile> {
    const parent = await this.#checkTarget(path, precondition, announcedBytes);
    const received = iterateBody(body);
    try {
      return await this.#receiveOrStage(path, parent, received, check, { lengthBytes, wholeBytesMax });
    } finally {
      // After an error the iterator would keep its listener on the body, whose rest could not be drained.
      await received.return(undefined);
    }
  }

  /** Receives a small file in memory; stores a longer one, piece by piece, in a staged file. */
  async #receiveOrStage(
    path: FilePath,
    parent: Attributes,
    received: AsyncGenerator<Buffer>,
    check: BodyCheck,
    { lengthBytes, wholeBytesMax }: Required<Omit<ReceiveLimits, 'announcedBytes'>>,
  ): Promise<ReceivedFile> {
    const bytesMax = Math.min(WHOLE_BYTES_MAX, wholeBytesMax);
    const mayBeWhole = this.#wholeFiles !== null && lengthBytes <= bytesMax;
    const beginning = mayBeWhole
      ? await this.#uploads.runAsUpload(() => beginningOf(received, bytesMax))
      : NOTHING_READ;
    if (beginning.isWhole) {
      const bytes = Buffer.concat(beginning.parts);
      check.update(bytes);
      check.check();
      return { kind: 'whole', parent, bytes };
    }
    const file = await this.#stage(path, parent);
    const filled = this.#uploads.store(file, joined(beginning.parts, received), check);
    return { kind: 'staged', state: await this.#discardOnError(file, filled) };
  }

  /** Returns the path's directory. @throws ServiceError if the file could not get this name now */
  async #checkTarget(
    path: FilePath,
    precondition: Precondition,
    announcedBytes: number | null,
  ): Promise<Attributes> {
    if (path.names.length === 0)
      throw new ServiceError('is-directory', `${displayPath(path)} is a directory`);
    const [current, parent] = await Promise.all([
      // The command that gives the name follows a link at the end, too.
      attributesAt(this.#gateway, path, { follow: true, live: true }),
      this.#directories.parentOf(path),
    ]);
    if (current?.kind === 'directory') {
      throw new ServiceError('is-directory', `${displayPath(path)} is a directory`);
    }
    await precondition.check(current);
    // Behind a link at the end, another directory's quota counts.
    if (announcedBytes !== null) await this.#assertQuota(current ?? parent, current, announcedBytes);
    return parent;
  }

  async #stage(
    path: FilePath,
    { uid, gid, placement }: Attributes,
    options: NewFileOptions = {},
    execute: 'command' | 'durably' = 'command',
  ): Promise<Attributes> {
    const kept = { untilNs: inUseUntilNs(this.#gateway.world.wallMs()) };
    const { volume } = path;
    const command = {
      kind: 'create-orphan',
      volume,
      place: { volume, path: volumePath(path.names) },
      mode: FILE_MODE,
      uid,
      gid,
      ...kept,
      ...options,
      // Otherwise a server that finds it among misplaced files moves it to servers of the volume's class, and back.
      ...(placement === undefined ? {} : { placement }),
    } as const;
    return (await this.#gateway[execute](command)).attributes;
  }

  /** @throws ServiceError `quota-exceeded` if a quota has no space now; the command that gives the name decides */
  async #assertQuota(
    { volume: name, quota }: Pick<Attributes, 'volume' | 'quota'>,
    replaced: Attributes | null,
    bytes: number,
    removal: Removal = {},
  ): Promise<void> {
    const [{ volume }, { quotas: ofDirectories }] = await Promise.all([
      this.#gateway.queryCatalog({ kind: 'volume', name }),
      quota === undefined ? NO_QUOTAS : this.#gateway.queryCatalog({ kind: 'quotas-of', inode: quota }),
    ]);
    const quotas = shownQuotas(volume, ofDirectories);
    const isKept = volume.trashMs > 0 && removal.trash !== false;
    const isFreed = replaced !== null && replaced.links === 1 && !isKept;
    if (!isFreed) assertInodesAllowed(quotas);
    assertBytesAllowed(quotas, bytes, isFreed ? (replaced.allowedBytes ?? replaced.sizeBytes) : 0);
  }

  runAsUpload<Result>(work: () => Promise<Result>): Promise<Result> {
    return this.#uploads.runAsUpload(work);
  }

  /** Resolves once all contents are stored and survive a loss of power. */
  finish(file: Attributes, sizeBytes: number): Promise<FileState> {
    return this.#uploads.finish(file, sizeBytes);
  }

  /** Fills a staged file from others, one after the other. @throws ServiceError `busy` if they change meanwhile */
  fillFrom(file: Attributes, sources: readonly CopySource[]): Promise<FileState> {
    return this.#discardOnError(file, this.#uploads.copy(file, ...sources));
  }

  /** Fills a staged file from another one, and with `keepsTime` sets its modification time. */
  async copy(file: Attributes, source: Attributes, keepsTime: boolean): Promise<FileState> {
    const state = await this.fillFrom(file, [{ attributes: source }]);
    const { modifiedNs } = source;
    // Before the file has its name: a client that sees the time sees the contents.
    if (keepsTime) await this.#gateway.command({ kind: 'set-attributes', inode: file.inode, modifiedNs });
    return state;
  }

  /** Links received contents at `path`, if the precondition holds then. `removal` is for a file that they replace. */
  async name(
    path: FilePath,
    received: ReceivedFile,
    precondition: Precondition,
    key: RequestKey | null,
    removal: Removal = {},
    xattrsOf: XattrsOf = () => [],
  ): Promise<NamedFile> {
    const place = { volume: path.volume, path: volumePath(path.names) };
    const commands = await KeyedCommands.load(this.#gateway, path.volume, key);
    // Another server has done this under the same key; another file may have the name by now.
    if (commands.result !== null) return namedFile(commands.result as Replaced);
    const change: Change = { path, place, precondition, commands, removal, xattrsOf };
    if (received.kind === 'staged' && received.isUpload) return this.#nameStaged(received.state, change);
    if (received.kind === 'staged') return this.#nameOrDiscard(received.state, change);
    const named = await this.#nameWhole(received, change);
    if (named !== null) return named;
    const file = await this.#stage(path, received.parent);
    return this.#nameOrDiscard(
      await this.#uploads.store(file, joined([received.bytes]), new DigestCheck([])),
      change,
    );
  }

  async #nameOrDiscard(state: StagedState, change: Change): Promise<NamedFile> {
    try {
      return await this.#nameStaged(state, change);
    } catch (error) {
      if (error instanceof ServiceError && REFUSALS.has(error.code)) await this.#collectSoon(state.file);
      throw error;
    }
  }

  /** Called if these contents get no name: has a staged file removed soon, unless it has a name. */
  async discard(received: ReceivedFile): Promise<void> {
    if (received.kind === 'staged') await this.#collectSoon(received.state.file);
  }

  async #discardOnError<Result>({ inode }: Attributes, filling: Promise<Result>): Promise<Result> {
    try {
      return await filling;
    } catch (error) {
      await this.#collectSoon(inode);
      throw error;
    }
  }

  /** Ends the reservation of a staged file that gets no directory entry, so that it is removed soon. */
  async #collectSoon(inode: number): Promise<void> {
    const command = { kind: 'keep-orphan', inode, untilNs: EXPIRED_NS } as const;
    await this.#gateway.command(command).catch((error: unknown) => {
      // It is removed when its reservation expires.
      if (!(error instanceof ServiceError)) throw error;
    });
  }

  async #nameStaged(
    { file: inode, contents }: StagedState,
    { path, place, precondition, commands, removal, xattrsOf }: Change,
  ): Promise<NamedFile> {
    const xattrs = fieldOf(xattrsOf({ inode, contents }));
    const result = await changeUnderConditions(this.#gateway, path, precondition, true, (expect) =>
      commands.durably({ kind: 'replace', place, inode, expect, ...removal, ...xattrs }),
    );
    return namedFile(result);
  }

  /** Creates the file with contents, under its name. Returns null if it must be staged instead. */
  async #nameWhole(
    { parent, bytes }: Extract<ReceivedFile, { kind: 'whole' }>,
    { path, place, precondition, commands, removal, xattrsOf }: Change,
  ): Promise<NamedFile | null> {
    const { uid, gid } = parent;
    let stored = null as StoredContents | null;
    const change = async (expect: Expectation): Promise<CommandResults['replace-with-contents'] | null> => {
      // After the first check of conditions and quota, so that a refusal leaves no contents.
      stored ??= await this.#storeWhole(path, bytes, parent, removal);
      if (stored === null) return null;
      const file = { mode: FILE_MODE, uid, gid, ...stored, ...fieldOf(xattrsOf(stored)) };
      const command = { kind: 'replace-with-contents', place, ...file, expect, ...removal } as const;
      return commands.durably(command).catch((error: unknown) => {
        // The volume's files are stored in another way by now, or the catalog's primary is of an earlier release.
        if (error instanceof ServiceError && error.code === 'bad-request') return null;
        return nullIfOutdated(error);
      });
    };
    const result = await changeUnderConditions(this.#gateway, path, precondition, true, change).catch(
      async (error: unknown) => {
        if (error instanceof ServiceError && NAME_REFUSALS.has(error.code)) await this.#void(stored);
        throw error;
      },
    );
    if (result === null || result.attributes.inode !== stored?.inode) await this.#void(stored);
    if (result === null) return null;
    // An earlier attempt with the same key may have created another file.
    if (result.attributes.inode !== stored?.inode) return namedFile(result);
    this.#wholeFiles?.entryCreated(stored.inode);
    const self = this.#gateway.services.status.id;
    return namedFile(result, stored.replicas.includes(self) ? self : null);
  }

  /**
   * Voids contents: the catalog then refuses a late command that names them; after an executed one this has no effect.
   * It survives a loss of power, because the contents may be removed next.
   */
  async #void(stored: StoredContents | null): Promise<void> {
    if (stored === null) return;
    const { owner, inode } = stored;
    await this.#gateway.durably({ kind: 'void-inodes', owner, inodes: [inode] }).catch((error: unknown) => {
      // The number expires, as it does if a member of the catalog runs an earlier release.
      if (!(error instanceof ServiceError)) throw error;
    });
  }

  /** Stores contents that have no entry yet; null: the file takes two steps. @throws `quota-exceeded` before storing */
  async #storeWhole(
    path: FilePath,
    bytes: Buffer,
    parent: Attributes,
    removal: Removal,
  ): Promise<StoredContents | null> {
    if (this.#wholeFiles === null) return null;
    const isInQuota = parent.quota !== undefined;
    if (isInQuota || (await this.#wholeFiles.mayExceedQuota(path.volume, bytes.length))) {
      const replaced = await attributesAt(this.#gateway, path, { follow: true, live: false });
      await this.#assertQuota(replaced ?? parent, replaced, bytes.length, removal);
    }
    return this.#wholeFiles.store(path.volume, bytes, parent.placement);
  }

  /** Returns what an earlier request with this key has stored, made durable; null if the catalog remembers none. */
  async findResult(volume: string, key: RequestKey): Promise<NamedFile | null> {
    const { result } = await KeyedCommands.load(this.#gateway, volume, key);
    // A key belongs to one method and URL, so its result is of this kind.
    return result === null ? null : namedFile(result as Replaced);
  }
}

type Replaced = CommandResults['replace' | 'replace-with-contents'];

interface Change {
  readonly path: FilePath;
  readonly place: Place;
  readonly precondition: Precondition;
  readonly commands: KeyedCommands;
  readonly removal: Removal;
  readonly xattrsOf: XattrsOf;
}

type StagedState = Extract<ReceivedFile, { kind: 'staged' }>['state'];

/** Absent if there are none: members of earlier releases do not know the field. */
function fieldOf(xattrs: NewXattrs): { readonly xattrs?: NewXattrs } {
  return xattrs.length === 0 ? {} : { xattrs };
}

export function sizeOf(received: ReceivedFile): number {
  return received.kind === 'whole' ? received.bytes.length : received.state.sizeBytes;
}

const NOTHING_READ: Beginning = { parts: [], isWhole: false };

interface Beginning {
  readonly parts: readonly Buffer[];
  readonly isWhole: boolean;
}

/** Reads a body up to its end, or until it exceeds `bytesMax`. */
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
