import type { Readable } from 'node:stream';
import { ServiceError } from '../../base/errors.ts';
import { assertBytesAllowed, assertInodeAllowed } from '../../catalog/quota.ts';
import type { Attributes, CommandResults } from '../../wire/catalog-api.ts';
import type { FileState } from '../../wire/http-api.ts';
import type { Gateway } from '../gateway.ts';
import { changeUnder, currentOf } from './conditional-change.ts';
import { type Conditions, checkForChange, etagOf, standingOf } from './conditions.ts';
import type { DigestCheck } from './digests.ts';
import type { Directories } from './directories.ts';
import { KeyedCommands, type RequestKey } from './idempotency.ts';
import { displayPath, type FilePath, volumePath } from './path.ts';
import type { Removal } from './removal.ts';
import type { Uploads } from './upload.ts';

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
}

/**
 * Files come as a whole: their contents go to a file without a name; one command of the catalog gives it the name.
 * Readers see the old file or the new one, and whoever breaks off has changed nothing.
 */
export class NewFiles {
  readonly #gateway: Gateway;
  readonly #uploads: Uploads;
  readonly #directories: Directories;

  constructor(gateway: Gateway, uploads: Uploads, directories: Directories) {
    this.#gateway = gateway;
    this.#uploads = uploads;
    this.#directories = directories;
  }

  /**
   * Refuses early what would be refused at the end, and makes a file without a name, of the volume and with the owner
   * of the directory that it is for.
   *
   * @param announcedBytes how long it will be, where the client waits for an answer before it sends the contents
   */
  async begin(
    path: FilePath,
    conditions: Conditions,
    options: NewFileOptions = {},
    announcedBytes: number | null = null,
    execute: 'command' | 'durably' = 'command',
  ): Promise<Attributes> {
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
    const { uid, gid } = parent;
    const { volume } = path;
    const command = { kind: 'create-orphan', volume, mode: FILE_MODE, uid, gid, ...options } as const;
    return (await this.#gateway[execute](command)).attributes;
  }

  /** @throws ServiceError `quota-exceeded` where the volume has no room for the file now; it is decided when it gets its name */
  async #assertRoom(name: string, replaced: Attributes | null, bytes: number): Promise<void> {
    const { volume } = await this.#gateway.queryCatalog({ kind: 'volume', name });
    const isFreed = replaced !== null && replaced.links === 1 && volume.trashMs === 0;
    if (replaced === null) assertInodeAllowed(volume);
    assertBytesAllowed(volume, bytes, isFreed ? replaced.sizeBytes : 0);
  }

  /** The contents of a file without a name, whole and safe from a loss of power when it resolves. */
  receive(file: Attributes, body: Readable, check: DigestCheck): Promise<FileState> {
    return this.#uploads.store(file, body, check);
  }

  /** Work on an upload that comes in pieces. @throws ServiceError `busy` where too many uploads go on */
  counted<Result>(work: () => Promise<Result>): Promise<Result> {
    return this.#uploads.counted(work);
  }

  /** The contents are all there, and safe from a loss of power, when it resolves. */
  finish(file: Attributes, sizeBytes: number): Promise<FileState> {
    return this.#uploads.finish(file, sizeBytes);
  }

  /** As `receive`, of what another file has. @param keepsTime it gets the modification time of the other one, too */
  async copy(file: Attributes, source: Attributes, keepsTime: boolean): Promise<FileState> {
    const state = await this.#uploads.copy(file, source);
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
    { file: inode }: Pick<FileState, 'file'>,
    conditions: Conditions,
    key: RequestKey | null,
    removal: Removal = {},
  ): Promise<NamedFile> {
    const place = { volume: path.volume, path: volumePath(path.names) };
    const commands = await KeyedCommands.of(this.#gateway, key);
    // What another server has done meanwhile under this key is not done again: others may have the name by now.
    if (commands.result !== null) {
      await this.#gateway.flushCatalog();
      return namedFile(commands.result as CommandResults['replace']);
    }
    const result = await changeUnder(this.#gateway, path, conditions, true, (expect) =>
      this.#gateway.durably({ kind: 'replace', place, inode, expect, ...removal }, commands.next()),
    );
    return namedFile(result);
  }

  /**
   * What an earlier request with this key has stored; null where none has, as far as the catalog remembers. It survives a
   * loss of power, although the earlier request may have failed before its flush.
   */
  async recall(key: RequestKey): Promise<NamedFile | null> {
    const { result } = await KeyedCommands.of(this.#gateway, key);
    if (result !== null) await this.#gateway.flushCatalog();
    // A key names one method and URL: what it has left behind is of this kind.
    return result === null ? null : namedFile(result as CommandResults['replace']);
  }
}

function namedFile({ attributes, replaced }: CommandResults['replace']): NamedFile {
  return { attributes, etag: etagOf(attributes.inode, attributes.contents), created: replaced === null };
}
