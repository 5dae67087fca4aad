import { ServiceError } from '../../base/errors.ts';
import { HEADER_CONTENTS, HEADER_SERVED } from '../../wire/http-api.ts';
import type { CallOptions, Exchanger } from '../transport/exchange.ts';
import { readBytes } from '../transport/response.ts';

const PIECE_BYTES = 1024 * 1024;

export interface ReplicaPiece {
  readonly bytes: Uint8Array;
  readonly sizeBytes: number;
  readonly contents: string;
}

/** Reads one server's own replica of a file, whatever the other servers hold. */
export class ReplicaReader {
  readonly #exchanger: Exchanger;
  readonly #file: number;

  constructor(exchanger: Exchanger, file: number) {
    this.#exchanger = exchanger;
    this.#file = file;
  }

  async read(offset: number, length: number, options?: CallOptions): Promise<ReplicaPiece> {
    const path = `/v1/data/${this.#file}?offset=${offset}&length=${length}&consistency=stale`;
    const what = `Cannot read a replica of file ${this.#file}`;
    return this.#exchanger.perform(
      { primary: null },
      { what, method: 'GET', path, mutation: false },
      async (response) => {
        if (response.headers[HEADER_SERVED] !== 'local')
          throw new ServiceError('not-found', `The server has no replica of file ${this.#file}`);
        const contents = String(response.headers[HEADER_CONTENTS] ?? '');
        return { ...(await readBytes(response)), contents };
      },
      options,
    );
  }

  /** Yields the replica's contents. @throws ServiceError `precondition-failed` if they are not those of the piece */
  async *stream({ sizeBytes, contents }: ReplicaPiece, options?: CallOptions): AsyncGenerator<Uint8Array> {
    for (let offset = 0; offset < sizeBytes; offset += PIECE_BYTES) {
      const piece = await this.read(offset, Math.min(PIECE_BYTES, sizeBytes - offset), options);
      if (piece.contents !== contents)
        throw new ServiceError(
          'precondition-failed',
          `File ${this.#file} changed while it was copied; try again when no program writes it`,
        );
      yield piece.bytes;
    }
  }
}
