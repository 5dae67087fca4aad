import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { removeTree } from '../http/tree-removal.ts';
import { type FilePath, volumePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { entriesOf } from './catalog-reads.ts';
import { UPLOADS_NAME } from './keys.ts';
import { S3Error } from './s3-error.ts';

/** A bucket: a directory, and the path to it. */
export interface Bucket {
  readonly name: string;
  readonly volume: string;
  readonly names: readonly string[];
}

export interface ListedBucket {
  readonly name: string;
  readonly createdNs: string;
}

/** What the buckets are: all volumes, or the directories of one directory. */
export type BucketRoot =
  | { readonly kind: 'volumes' }
  | { readonly kind: 'directory'; readonly volume: string; readonly names: readonly string[] };

/** Names of buckets: those of S3 that are also names of volumes. */
const NAME = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
const ADDRESS = /^\d+\.\d+\.\d+\.\d+$/;
const DIRECTORY_MODE = 0o755;
const NO_SEARCH = new URLSearchParams();
const REPLICAS_DEFAULT = 3;
const OBJECT_BYTES = 128 * 1024;
/** Attempts to remove a directory in which other requests create entries. */
const REMOVALS_MAX = 100;

export function bucketPath({ volume, names }: Bucket, below: readonly string[] = []): FilePath {
  return { volume, names: [...names, ...below], directory: false, search: NO_SEARCH };
}

export class Buckets {
  readonly #gateway: Gateway;
  readonly #root: BucketRoot;

  constructor(gateway: Gateway, root: BucketRoot) {
    this.#gateway = gateway;
    this.#root = root;
  }

  get areVolumes(): boolean {
    return this.#root.kind === 'volumes';
  }

  /** The volume of the bucket of this name, whatever the name. */
  volumeOf(name: string): string {
    return this.#root.kind === 'volumes' ? name : this.#root.volume;
  }

  /** The bucket of this name, whether it exists or not. @throws S3Error `NoSuchBucket` if none can have it */
  named(name: string): Bucket {
    const isOfOther = this.#root.kind === 'volumes' && /^[a-z0-9][a-z0-9._-]{0,62}$/.test(name);
    if (!isOfOther && !isBucketName(name)) throw noSuchBucket(name);
    if (this.#root.kind === 'volumes') return { name, volume: name, names: [] };
    const { volume, names } = this.#root;
    return { name, volume, names: [...names, name] };
  }

  /** @throws S3Error `NoSuchBucket` */
  async directoryOf(bucket: Bucket): Promise<Attributes> {
    const query = {
      kind: 'resolve',
      volume: bucket.volume,
      path: volumePath(bucket.names),
      follow: true,
    } as const;
    try {
      const { attributes } = await this.#gateway.queryCatalog(query);
      if (attributes.kind === 'directory') return attributes;
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'not-found') throw error;
    }
    throw noSuchBucket(bucket.name);
  }

  /** In the order of their names. */
  async list(): Promise<ListedBucket[]> {
    if (this.#root.kind === 'directory') return this.#listDirectory(this.#root);
    const { volumes } = await this.#gateway.queryCatalog({ kind: 'volumes' });
    const roots = await Promise.all(
      volumes.map(async ({ name, root }) => {
        const { attributes } = await this.#gateway.queryCatalog({ kind: 'attributes', inode: root });
        return { name, createdNs: attributes.createdNs ?? attributes.changedNs };
      }),
    );
    return roots.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  async #listDirectory({ volume, names }: Pick<Bucket, 'volume' | 'names'>): Promise<ListedBucket[]> {
    const query = { kind: 'resolve', volume, path: volumePath(names), follow: true } as const;
    const gateway = this.#gateway;
    const { attributes: directory } = await gateway.queryCatalog(query);
    const buckets: ListedBucket[] = [];
    const entries = entriesOf(gateway, directory);
    for await (const { name, attributes } of entries)
      if (attributes.kind === 'directory' && isBucketName(name))
        buckets.push({ name, createdNs: attributes.createdNs ?? attributes.changedNs });
    return buckets;
  }

  /** Nothing changes if the bucket exists, as in the region that is reported. @throws S3Error `InvalidBucketName` */
  async create(name: string): Promise<void> {
    if (!isBucketName(name))
      throw new S3Error(
        'InvalidBucketName',
        `"${name}" is no name of a bucket: it has 3 to 63 lower-case letters, digits, dots and hyphens`,
      );
    const bucket = this.named(name);
    try {
      await this.#create(bucket);
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'exists') throw error;
      await this.directoryOf(bucket).catch((cause: unknown) => {
        if (!(cause instanceof S3Error) || cause.s3 !== 'NoSuchBucket') throw cause;
        throw new S3Error('BucketAlreadyExists', `A file has the name "${name}"`, { cause });
      });
    }
  }

  async #create({ name, volume, names }: Bucket): Promise<void> {
    if (this.#root.kind === 'volumes') {
      // Also servers that have not registered yet: they are about to.
      const replicas = Math.min(REPLICAS_DEFAULT, this.#gateway.services.status.urls.size);
      const settings = { replicas, policy: 'quorum', objectBytes: OBJECT_BYTES } as const;
      await this.#gateway.durably({ kind: 'volume-create', name, ...settings });
      return;
    }
    const owner = { mode: DIRECTORY_MODE, uid: 0, gid: 0 };
    await this.#gateway.durably({
      kind: 'make-directory',
      place: { volume, path: volumePath(names) },
      ...owner,
    });
  }

  /** @throws S3Error `BucketNotEmpty`, `NoSuchBucket` */
  async remove(bucket: Bucket): Promise<void> {
    const { inode } = await this.directoryOf(bucket);
    const { entries } = await this.#gateway.queryCatalog({ kind: 'list', inode, after: '', countMax: 2 });
    if (entries.some(({ name }) => name !== UPLOADS_NAME))
      throw new S3Error('BucketNotEmpty', `The bucket "${bucket.name}" is not empty`);
    // Unfinished uploads end with their bucket.
    if (entries.length > 0) await removeWholeTree(this.#gateway, bucketPath(bucket, [UPLOADS_NAME]));
    if (this.#root.kind === 'volumes')
      await this.#gateway.durably({ kind: 'volume-remove', name: bucket.name });
    else
      await this.#gateway.durably({
        kind: 'remove-directory',
        place: { volume: bucket.volume, path: volumePath(bucket.names) },
      });
  }
}

/** Removes a directory with all that is in it. A concurrent removal of it is no failure. */
export async function removeWholeTree(gateway: Gateway, path: FilePath): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      while ((await removeTree(gateway, path, { trash: false })).more);
      return;
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      if (error.code === 'not-found') return;
      // Another request has created an entry meanwhile, as a part of an upload that is being aborted.
      if (error.code !== 'not-empty' || attempt === REMOVALS_MAX) throw error;
    }
  }
}

function noSuchBucket(name: string): S3Error {
  return new S3Error('NoSuchBucket', `There is no bucket "${name}"`);
}

function isBucketName(name: string): boolean {
  return NAME.test(name) && !/[.-]\.|\.-/.test(name) && !ADDRESS.test(name);
}
