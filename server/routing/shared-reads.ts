import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Attributes, ContentVersion, SharedContents } from '../../wire/catalog-api.ts';
import type { FileState } from '../../wire/http-api.ts';
import type { CallOptions } from './router.ts';

/** While a read looks for contents, they move at most once: to the file that preserves them. */
const ATTEMPTS_MAX = 3;

/**
 * A file of a clone has no servers, because its contents are still those of a snapshot. Within a server: who reads them
 * asks where they are.
 */
export class SharedFile extends Error {
  override readonly name = 'SharedFile';
  readonly attributes: Attributes;

  constructor(attributes: Attributes) {
    super(`File ${attributes.inode} has the contents of a snapshot`);
    this.attributes = attributes;
  }
}

/** Where the contents of a shared file are: in the file `source`, as its version `asOf`. */
export interface SharedLocation {
  readonly source: FileId;
  readonly asOf: ContentVersion;
}

/**
 * Reads files of clones that have no contents of their own: docs/design/clones.md. Each read asks the catalog, after it
 * has begun: once the file has contents of its own, no read takes those of the snapshot.
 */
export class SharedReads {
  readonly #ask: (file: FileId, options: CallOptions) => Promise<Pick<SharedContents, 'source' | 'contents'>>;

  constructor(
    ask: (file: FileId, options: CallOptions) => Promise<Pick<SharedContents, 'source' | 'contents'>>,
  ) {
    this.#ask = ask;
  }

  /**
   * Calls `own`; if the file turns out to be shared, calls `read` with the place of its contents, and again if they
   * have moved. Only options for queries are used, and `asOf`: the version of the file that the caller expects.
   * @throws ServiceError `integrity` if no file has the contents any more; `precondition-failed` for another version
   */
  async use<Result>(
    file: FileId,
    { asOf, ...options }: CallOptions & { readonly asOf?: ContentVersion | undefined },
    own: () => Promise<Result>,
    read: (shown: SharedLocation, attributes: Attributes) => Promise<Result>,
  ): Promise<Result> {
    try {
      return await own();
    } catch (error) {
      if (!(error instanceof SharedFile)) throw error;
      const { contents } = error.attributes;
      if (asOf !== undefined && (asOf.epoch !== contents.epoch || asOf.seq !== contents.seq))
        throw new ServiceError(
          'precondition-failed',
          `The contents of file ${file} are not of version ${asOf.epoch}.${asOf.seq}`,
        );
      return this.#read(file, options, (shown) => read(shown, error.attributes));
    }
  }

  async #read<Result>(
    file: FileId,
    options: CallOptions,
    read: (shown: SharedLocation) => Promise<Result>,
  ): Promise<Result> {
    for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
      const { source, contents } = await this.#ask(file, options);
      try {
        return await read({ source: source as FileId, asOf: contents });
      } catch (error) {
        if (!(error instanceof ServiceError) || error.code !== 'precondition-failed') throw error;
      }
    }
    throw new ServiceError(
      'integrity',
      `The contents of file ${file}, those of a snapshot, were lost in a power failure of a majority of its servers`,
    );
  }
}

/** The state of a shared file, as one with contents of its own has it. @param primary the server that answers */
export function sharedState(
  { inode, sizeBytes, holeBytes, modifiedNs, contents }: Attributes,
  primary: string,
): FileState {
  const holes = holeBytes === undefined ? {} : { holeBytes };
  const { epoch, seq } = contents;
  return { ...{ file: inode, sizeBytes, ...holes, modifiedNs, contents }, ...{ seq, epoch, primary } };
}
