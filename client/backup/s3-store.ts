import type { S3Client } from '../s3/s3-client.ts';
import { listNames, readObject, UnreadableObject } from '../s3/s3-objects.ts';
import { uploadObject } from '../s3/s3-upload.ts';
import { type BackupStore, isLinkName } from './backup-store.ts';
import { SealedStreamError } from './sealed-stream.ts';

/** Backups as objects of S3, whose keys are a prefix and the name. */
export class S3Store implements BackupStore {
  readonly place: string;
  readonly #client: S3Client;
  readonly #prefix: string;

  /** @param prefix empty, or with a slash at its end */
  constructor(client: S3Client, prefix: string) {
    this.#client = client;
    this.#prefix = prefix;
    this.place = client.placeOf(prefix);
  }

  async names(): Promise<string[]> {
    return (await listNames(this.#client, this.#prefix)).filter(isLinkName).sort();
  }

  async *read(name: string): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      yield* readObject(this.#client, this.#prefix + name);
    } catch (error) {
      if (error instanceof UnreadableObject) throw new SealedStreamError(error.message, { cause: error });
      throw error;
    }
  }

  write(name: string, source: AsyncIterable<Uint8Array>, expectedBytes: number): Promise<void> {
    return uploadObject(this.#client, this.#prefix + name, source, expectedBytes);
  }
}
