import { ServiceError } from '../../base/errors.ts';
import type { Attributes, CommandOf } from '../../wire/catalog-api.ts';
import { attributesAt, changeUnderConditions, type Precondition } from '../http/conditional-change.ts';
import { type Conditions, checkForChange, NO_CONDITIONS } from '../http/conditions.ts';
import type { Directories } from '../http/directories.ts';
import type { NamedFile, NewFiles, ReceivedFile } from '../http/new-files.ts';
import type { Removal } from '../http/removal.ts';
import type { CopySource } from '../http/upload.ts';
import { type FilePath, volumePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { type Bucket, type Buckets, bucketPath } from './buckets.ts';
import type { ReceivedBody } from './call.ts';
import { xattrOf } from './catalog-reads.ts';
import { keyPath, newKeyPath, noSuchKey } from './keys.ts';
import {
  type Computed,
  decodeRecord,
  encodeRecord,
  IMPLICIT_XATTR,
  type ObjectRecord,
  objectEtag,
  RECORD_XATTR,
  recordXattrs,
} from './object-record.ts';
import { checkRemoval, hasRemovalConditions, type RemovalConditions } from './removal-conditions.ts';
import { S3Error } from './s3-error.ts';

const DIRECTORY_MODE = 0o755;
/** Attempts while the directories of a key are removed as empty. */
const NAMINGS_MAX = 10;
/** Attempts while others write the source of a copy. */
const COPIES_MAX = 3;
const WITH_PARENTS = new URLSearchParams('parents=true');
/** Errors with which a path has no file. */
const NOWHERE: ReadonlySet<string> = new Set(['not-found', 'not-directory', 'junction', 'symlink-loop']);

/** Refusals to remove a directory. */
const STAYS: ReadonlySet<string> = new Set(['not-empty', 'attached', 'protected', 'precondition-failed']);

/** An object that exists: a file, or the directory of a key that ends in a slash. */
export interface FoundObject {
  readonly attributes: Attributes;
  readonly record: ObjectRecord;
}

/** Conditions of a request by which it changes an object. */
export type ChangeConditions = Pick<Conditions, 'ifMatch' | 'ifNoneMatch'>;

export interface NewObject {
  readonly bucket: Bucket;
  readonly key: string;
  readonly conditions: ChangeConditions;
  readonly record: Omit<ObjectRecord, 'of' | 'computed' | 'implicit'>;
  readonly removal: Removal;
  /** Checked with the conditions, whenever the object could get its name. @throws ServiceError if it must not */
  assertWanted?(): Promise<void>;
}

/** What a new object gets from others: all of it as of one moment. */
export interface CopiedContents extends Pick<NewObject, 'record'> {
  readonly sources: readonly CopySource[];
  readonly computed: Computed | null;
}

export interface ObjectStoreParts {
  readonly gateway: Gateway;
  readonly files: NewFiles;
  /** Creates the directories of keys. */
  readonly directories: Directories;
  readonly buckets: Buckets;
}

/** Objects of buckets as files: what a key names, and what creates, replaces and removes it. */
export class ObjectStore {
  readonly #parts: ObjectStoreParts;

  constructor(parts: ObjectStoreParts) {
    this.#parts = parts;
  }

  /** @throws S3Error `NoSuchKey`, `NoSuchBucket` */
  async find(bucket: Bucket, key: string, { live } = { live: true }): Promise<FoundObject> {
    const found = await this.#findOrNull(bucket, key, live);
    if (found !== null) return found;
    await this.#parts.buckets.directoryOf(bucket);
    throw noSuchKey(key);
  }

  async #findOrNull(bucket: Bucket, key: string, live: boolean): Promise<FoundObject | null> {
    const path = keyPath(key);
    if (typeof path === 'string') return null;
    const attributes = await this.#attributesAt(bucketPath(bucket, path.names), live);
    if (attributes === null || attributes.kind !== (path.directory ? 'directory' : 'file')) return null;
    const record = await this.recordOf(attributes);
    return record.implicit === true ? null : { attributes, record };
  }

  async #attributesAt(path: FilePath, live: boolean): Promise<Attributes | null> {
    try {
      return await attributesAt(this.#parts.gateway, path, { follow: true, live });
    } catch (error) {
      if (error instanceof ServiceError && NOWHERE.has(error.code)) return null;
      throw error;
    }
  }

  async recordOf(inode: Pick<Attributes, 'inode' | 'xattrs'>): Promise<ObjectRecord> {
    return decodeRecord(await xattrOf(this.#parts.gateway, inode, RECORD_XATTR));
  }

  /** Changes what is recorded of an object or bucket beside its contents. */
  async setRecord(inode: number, record: ObjectRecord): Promise<void> {
    const value = encodeRecord(record);
    await this.#parts.gateway.durably({ kind: 'set-xattr', inode, name: RECORD_XATTR, value, mode: 'set' });
  }

  /** Creates or replaces an object with a body. @returns the object, and what was computed of it */
  async put(object: NewObject, received: ReceivedBody): Promise<NamedFile & { readonly computed: Computed }> {
    const { bucket, key } = object;
    const path = newKeyPath(key);
    if (path.directory) return this.#putDirectory(object, path.names, received);
    const target = { ...bucketPath(bucket, path.names), search: WITH_PARENTS };
    const { body, check, lengthBytes, announcedBytes } = received;
    const precondition = this.preconditionOf(object.conditions, key);
    const file = await this.#inBucket(bucket, () =>
      this.#parts.files.receive(target, precondition, body, check, { announcedBytes, lengthBytes }),
    );
    const { md5, checksum } = check.digests;
    const computed = { etag: md5.toString('hex'), ...(checksum === null ? {} : { checksum }) };
    return { ...(await this.#name(object, target, file, computed)), computed };
  }

  /** Creates or replaces an object with the contents of others, one after the other, as they are now. */
  async putCopy(
    object: Omit<NewObject, 'record'>,
    sourcesOf: () => Promise<CopiedContents>,
  ): Promise<NamedFile> {
    const { bucket, key } = object;
    const path = newKeyPath(key);
    if (path.directory)
      throw new S3Error('InvalidArgument', 'A directory has no contents: its key ends in "/"');
    const target = { ...bucketPath(bucket, path.names), search: WITH_PARENTS };
    const { files } = this.#parts;
    for (let attempt = 1; ; attempt++) {
      const { sources, computed, record } = await sourcesOf();
      const staged = await this.#inBucket(bucket, () =>
        files.createStaged(target, this.preconditionOf(object.conditions, key)),
      );
      try {
        const state = await files.fillFrom(
          staged,
          sources.map((source) => ({ ...source, exact: true as const })),
        );
        return await this.#name({ ...object, record }, target, { kind: 'staged', state }, computed);
      } catch (error) {
        const isSourceChanging = error instanceof ServiceError && error.code === 'busy';
        if (!isSourceChanging || attempt === COPIES_MAX) throw error;
      }
    }
  }

  /** Names received contents; creates the key's directories again if another request has removed them as empty. */
  async #name(
    { bucket, key, conditions, record, removal, assertWanted }: NewObject,
    target: FilePath,
    file: ReceivedFile,
    computed: Computed | null,
  ): Promise<NamedFile> {
    const { files, directories } = this.#parts;
    const ofObject = { ...record, ...(computed === null ? {} : { computed }) };
    const ofKey = this.preconditionOf(conditions, key);
    const precondition = {
      isAlways: ofKey.isAlways && assertWanted === undefined,
      check: async (current: Attributes | null): Promise<void> => {
        await assertWanted?.();
        await ofKey.check(current);
      },
    };
    for (let attempt = 1; ; attempt++) {
      try {
        return await files.name(target, file, precondition, null, removal, (named) =>
          recordXattrs(ofObject, named),
        );
      } catch (error) {
        const isGone =
          error instanceof ServiceError && error.code === 'not-found' && !(error instanceof S3Error);
        if (!isGone || attempt === NAMINGS_MAX) throw error;
        await this.#inBucket(bucket, () => directories.parentOf(target));
      }
    }
  }

  /** A directory is an object of its own once a client has put it. */
  async #putDirectory(
    { bucket, key, conditions, record }: NewObject,
    names: readonly string[],
    { body, check: payload, lengthBytes }: ReceivedBody,
  ): Promise<NamedFile & { readonly computed: Computed }> {
    if (lengthBytes > 0) throw hasNoContents();
    for await (const part of body.iterator({ destroyOnReturn: false }))
      if ((part as Buffer).length > 0) throw hasNoContents();
    payload.check();
    const { gateway, directories } = this.#parts;
    const target = { ...bucketPath(bucket, names), search: WITH_PARENTS };
    const check = async (): Promise<void> =>
      this.preconditionOf(conditions, key).check(
        (await this.#findOrNull(bucket, key, true))?.attributes ?? null,
      );
    await check();
    const parent = await this.#inBucket(bucket, () => directories.parentOf(target));
    const computed = { etag: payload.digests.md5.toString('hex') };
    const place = { volume: target.volume, path: volumePath(names) };
    const make = {
      kind: 'make-directory',
      place,
      mode: DIRECTORY_MODE,
      uid: parent.uid,
      gid: parent.gid,
    } as const;
    let created = true;
    await gateway.durably(make).catch((error: unknown) => {
      if (!(error instanceof ServiceError) || error.code !== 'exists') throw error;
      created = false;
    });
    // Another request may have put it since the check.
    if (!created) await check();
    const attributes = await this.#attributesAt(target, false);
    if (attributes?.kind !== 'directory') throw noSuchKey(key);
    await this.setRecord(attributes.inode, { ...record, of: ofContents(attributes), computed });
    return { attributes, etag: `"${computed.etag}"`, created, creator: null, computed };
  }

  /** Removes an object if it exists, and directories that existed only because of it. */
  async remove(bucket: Bucket, key: string, conditions: RemovalConditions, removal: Removal): Promise<void> {
    const path = keyPath(key);
    if (typeof path === 'string' || path.names.length === 0) {
      await this.#parts.buckets.directoryOf(bucket);
      return;
    }
    const target = bucketPath(bucket, path.names);
    if (path.directory) await this.#removeDirectory(bucket, key, target, conditions);
    else {
      const place = { volume: target.volume, path: volumePath(target.names) };
      const precondition = this.#removalPrecondition(conditions);
      const { gateway } = this.#parts;
      await changeUnderConditions(gateway, target, precondition, false, (expect) =>
        gateway.durably({ kind: 'unlink', place, expect, ...removal }),
      ).catch(async (error: unknown) => {
        if (!(error instanceof ServiceError) || error instanceof S3Error) throw error;
        // What is not there is removed.
        if (!NOWHERE.has(error.code) && error.code !== 'is-directory') throw error;
        await this.#parts.buckets.directoryOf(bucket);
      });
    }
    await this.#removeEmptyParents(bucket, path.names);
  }

  /** Nothing is removed, whatever the conditions, if nothing is there. */
  #removalPrecondition(conditions: RemovalConditions): Precondition {
    return {
      isAlways: !hasRemovalConditions(conditions),
      check: async (current) => {
        if (current === null || current.kind === 'directory') return;
        if (current.kind !== 'file')
          throw new S3Error('PreconditionFailed', `The key has a ${current.kind}, which has no entity tag`);
        checkRemoval(conditions, await this.recordOf(current), current);
      },
    };
  }

  async #removeDirectory(
    bucket: Bucket,
    key: string,
    target: FilePath,
    conditions: RemovalConditions,
  ): Promise<void> {
    const found = await this.#findOrNull(bucket, key, false);
    if (found === null) {
      await this.#parts.buckets.directoryOf(bucket);
      return;
    }
    checkRemoval(conditions, found.record, found.attributes);
    if (await this.#removeIfEmpty(target)) return;
    // It stays for the objects in it, and goes with the last of them.
    await this.setRecord(found.attributes.inode, { implicit: true }).catch((error: unknown) => {
      // Another request has removed it, and all that was in it.
      if (!(error instanceof ServiceError) || error.code !== 'not-found') throw error;
    });
  }

  /** @param xattr removes it only if it still has this attribute */
  async #removeIfEmpty(
    directory: FilePath,
    xattr?: CommandOf<'remove-directory'>['xattr'],
  ): Promise<boolean> {
    const place = { volume: directory.volume, path: volumePath(directory.names) };
    const command = { kind: 'remove-directory', place, ...(xattr === undefined ? {} : { xattr }) } as const;
    try {
      await this.#parts.gateway.durably(command);
      return true;
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      if (NOWHERE.has(error.code)) return true;
      if (STAYS.has(error.code)) return false;
      throw error;
    }
  }

  async #removeEmptyParents(bucket: Bucket, names: readonly string[]): Promise<void> {
    for (let depth = names.length - 1; depth > 0; depth--) {
      const parent = bucketPath(bucket, names.slice(0, depth));
      const attributes = await this.#attributesAt(parent, false);
      if (attributes?.kind !== 'directory') continue;
      if (!(await this.#isLeftOver(attributes))) return;
      // A client may put it as an object meanwhile.
      if (!(await this.#removeIfEmpty(parent, IMPLICIT_XATTR))) return;
    }
  }

  /** Whether a directory was there for objects only, and has none; also one that another request has removed. */
  async #isLeftOver(directory: Attributes): Promise<boolean> {
    const { inode } = directory;
    try {
      const { entries } = await this.#parts.gateway.queryCatalog({
        kind: 'list',
        inode,
        after: '',
        countMax: 1,
      });
      return entries.length === 0 && (await this.recordOf(directory)).implicit === true;
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'not-found') return true;
      throw error;
    }
  }

  /** The precondition of a change by entity tags of S3. */
  preconditionOf({ ifMatch, ifNoneMatch }: ChangeConditions, key: string): Precondition {
    return {
      isAlways: ifMatch === undefined && ifNoneMatch === undefined,
      check: async (current) => {
        if (current === null && ifMatch !== undefined) throw noSuchKey(key);
        const record = current === null ? {} : await this.recordOf(current);
        const version =
          current === null || record.implicit === true
            ? null
            : { etag: objectEtag(record, current), modifiedNs: current.modifiedNs };
        const what = `the object ${JSON.stringify(key)}`;
        checkForChange({ ...NO_CONDITIONS, ifMatch, ifNoneMatch }, version, what);
      },
    };
  }

  /** @throws S3Error `NoSuchBucket` if something is missing because the bucket is */
  async #inBucket<Result>(bucket: Bucket, work: () => Promise<Result>): Promise<Result> {
    const { buckets } = this.#parts;
    // Keys create directories, and with them a bucket that is one; a volume is created by no path.
    if (!buckets.areVolumes) await buckets.directoryOf(bucket);
    try {
      return await work();
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'not-found') await buckets.directoryOf(bucket);
      throw error;
    }
  }
}

function hasNoContents(): S3Error {
  return new S3Error('InvalidArgument', 'A key that ends in "/" is a directory here, and has no contents');
}

function ofContents({ inode, contents }: Attributes): readonly [number, number, number] {
  return [inode, contents.epoch, contents.seq];
}
