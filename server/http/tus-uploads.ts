import type { Readable } from 'node:stream';
import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber, FileId } from '../../base/ids.ts';
import { type Attributes, UPLOAD_NOTE } from '../../wire/catalog-api.ts';
import { FILE_BYTES_MAX } from '../../wire/file-operation.ts';
import type { FilePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { preconditionOf } from './conditional-change.ts';
import { type Conditions, NO_CONDITIONS } from './conditions.ts';
import { sessionOf } from './idempotency.ts';
import type { NewFiles } from './new-files.ts';
import { chunkBytesOf, chunksOf, iterateBody } from './upload.ts';

/** An upload without a new piece expires after this time. */
export const EXPIRES_MS = 24 * 60 * 60_000;

/** State of an upload, kept in the catalog at its unlinked file, so that any server can continue it. */
interface Note {
  /** Part of the upload's name, so that clients cannot guess it. */
  readonly secret: string;
  readonly names: readonly string[];
  readonly parents: boolean;
  readonly lengthBytes: number;
  readonly metadata: string;
  readonly ifMatch: string | null;
  readonly ifNoneMatch: string | null;
}

export interface TusUpload {
  readonly file: Attributes;
  /** Null once the file has its name. */
  readonly note: Note | null;
  readonly offsetBytes: number;
  readonly lengthBytes: number;
  /** An operation of the file's catalog from before the file was seen without a name. */
  readonly since: { readonly catalog: CatalogNumber; readonly seq: number } | null;
}

/** Uploads in pieces. The bytes are in an unlinked file, whose size at its primary says how far they reach. */
export class TusUploads {
  readonly #gateway: Gateway;
  readonly #files: NewFiles;

  constructor(gateway: Gateway, files: NewFiles) {
    this.#gateway = gateway;
    this.#files = files;
  }

  expires(): string {
    return new Date(this.#gateway.world.wallMs() + EXPIRES_MS).toUTCString();
  }

  runAsUpload<Result>(work: () => Promise<Result>): Promise<Result> {
    return this.#files.runAsUpload(work);
  }

  /** Returns the upload's name. @throws ServiceError `quota-exceeded`, `too-large` or `precondition-failed` early */
  async create(
    path: FilePath,
    lengthBytes: number,
    metadata: string,
    conditions: Conditions,
  ): Promise<string> {
    if (lengthBytes > FILE_BYTES_MAX)
      throw new ServiceError('too-large', `The file would exceed the maximum of ${FILE_BYTES_MAX} bytes`);
    const secret = this.#gateway.world.randomBytes(16).toString('hex');
    const note: Note = {
      secret,
      names: path.names,
      parents: path.search.get('parents') === 'true',
      lengthBytes,
      metadata,
      ifMatch: conditions.ifMatch ?? null,
      ifNoneMatch: conditions.ifNoneMatch ?? null,
    };
    const options = {
      note: Buffer.from(JSON.stringify(note)).toString('base64'),
      untilNs: untilNs(this.#gateway.world.wallMs()),
    };
    const file = await this.#files.createStaged(
      path,
      preconditionOf(conditions, path),
      options,
      lengthBytes,
      'durably',
    );
    return `${file.inode}-${secret}`;
  }

  /** @throws ServiceError `not-found` if there is no such upload, or it has expired */
  async find(volume: string, name: string): Promise<TusUpload> {
    const missing = new ServiceError(
      'not-found',
      `Upload "${name}" does not exist or has expired: start a new one`,
    );
    const [, inode, secret] = /^([1-9][0-9]{0,15})-([0-9a-f]{32})$/.exec(name) ?? [];
    if (inode === undefined) throw missing;
    const catalog = this.#gateway.ofInode(Number(inode));
    // Any answer of the catalog names a position.
    if (catalog.seq === null) await this.#attributes(Number(inode));
    const { number, seq } = catalog;
    const since = seq === null ? null : { catalog: number, seq };
    const file = await this.#attributes(Number(inode));
    if (file === null || file.volume !== volume || file.kind !== 'file') throw missing;
    const note = await this.#noteOf(file.inode);
    if (note === null) {
      // It has its name, so all of it has arrived.
      if (file.links === 0) throw missing;
      return { file, note, offsetBytes: file.sizeBytes, lengthBytes: file.sizeBytes, since };
    }
    if (note.secret !== secret) throw missing;
    const { sizeBytes } = await this.#gateway.files.state(file.inode as FileId);
    return { file, note, offsetBytes: sizeBytes, lengthBytes: note.lengthBytes, since };
  }

  /**
   * Appends `body`, and returns the new size. Each write is refused unless the file has the size at which it begins, so
   * that of two concurrent clients one is refused. Bytes that arrived before a connection broke are kept.
   * @throws ServiceError `precondition-failed` for the other client, `too-large` for more than was announced
   */
  async append({ file, offsetBytes, lengthBytes }: TusUpload, body: Readable): Promise<number> {
    const inode = file.inode as FileId;
    await this.#gateway.command({
      kind: 'keep-orphan',
      inode,
      untilNs: untilNs(this.#gateway.world.wallMs()),
    });
    const { seq: since } = await this.#gateway.files.state(inode);
    const session = this.#gateway.drawSession();
    let offset = offsetBytes;
    let number = 0;
    for await (const bytes of chunksOf(iterateBody(body), chunkBytesOf(file.objectBytes), {
      keepsRest: true,
    })) {
      if (offset + bytes.length > lengthBytes) {
        throw new ServiceError('too-large', `The upload exceeds its Upload-Length of ${lengthBytes} bytes`);
      }
      const request = { session, number: ++number, since, answered: number - 1 };
      await this.#gateway.files.write(inode, request, offset, bytes, { guard: { sizeBytes: offset } });
      offset += bytes.length;
    }
    return offset;
  }

  /**
   * Gives the file its name, durably, if all of it has arrived. Several servers may do so concurrently: the upload has
   * one session of commands, so the name is given once, even if the file was renamed or removed since.
   */
  async complete(volume: string, upload: TusUpload): Promise<void> {
    const { file, note, offsetBytes, lengthBytes, since } = upload;
    if (note === null) {
      if (await this.#hasName(file.inode)) return;
      throw new ServiceError('busy', "The file's name was lost in a power failure: send the request again");
    }
    if (offsetBytes < lengthBytes) return;
    const state = await this.#files.finish(file, lengthBytes);
    const search = new URLSearchParams(note.parents ? 'parents=true' : '');
    const conditions = {
      ...NO_CONDITIONS,
      ifMatch: note.ifMatch ?? undefined,
      ifNoneMatch: note.ifNoneMatch ?? undefined,
    };
    const path = { volume, names: note.names, directory: false, search };
    try {
      const key = {
        session: sessionOf(`tus ${file.inode} ${note.secret}`),
        ...(since === null ? {} : { since }),
      };
      const precondition = preconditionOf(conditions, path);
      await this.#files.name(path, { kind: 'staged', state, isUpload: true }, precondition, key);
    } catch (error) {
      // Two servers asked at the same time both see that all of it has arrived.
      if (!(await this.#hasName(file.inode))) throw error;
    }
  }

  /** Returns whether the file has a name, and makes the name durable. */
  #hasName(inode: number): Promise<boolean> {
    const query = async (): Promise<boolean> => {
      const file = await this.#attributes(inode);
      return file !== null && file.links > 0;
    };
    return this.#gateway.ofInode(inode).findDurably(query, (hasName) => hasName);
  }

  /** Ends the upload now; the next garbage collection removes its bytes. */
  async terminate({ file, note }: TusUpload): Promise<void> {
    const { inode } = file;
    if (note === null)
      throw new ServiceError('exists', 'The upload is complete and cannot be cancelled: delete the file');
    await this.#gateway.command({ kind: 'remove-xattr', inode, name: UPLOAD_NOTE });
    await this.#gateway.durably({ kind: 'keep-orphan', inode, untilNs: '0' });
  }

  async #attributes(inode: number): Promise<Attributes | null> {
    return nullIf('not-found', async () => {
      const { attributes } = await this.#gateway.queryCatalog({ kind: 'attributes', inode });
      return attributes;
    });
  }

  async #noteOf(inode: number): Promise<Note | null> {
    return nullIf('no-attribute', async () => {
      const { value } = await this.#gateway.query({ kind: 'xattr', inode, name: UPLOAD_NOTE });
      // Only `create` writes it.
      return JSON.parse(Buffer.from(value, 'base64').toString()) as Note;
    });
  }
}

function untilNs(wallMs: number): string {
  return (BigInt(wallMs + EXPIRES_MS) * 1_000_000n).toString();
}

async function nullIf<Value>(code: ServiceError['code'], work: () => Promise<Value>): Promise<Value | null> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ServiceError && error.code === code) return null;
    throw error;
  }
}
