export type FolderErrorCode =
  | 'locked'
  | 'foreign'
  | 'wrong-cluster'
  | 'wrong-server'
  | 'unknown-format'
  | 'not-writable'
  | 'no-space'
  | 'damaged';

/** These end by themselves: the other process ends, space becomes free. */
const TEMPORARY: ReadonlySet<FolderErrorCode> = new Set(['locked', 'no-space']);

/** The data folder cannot be used. */
export class FolderError extends Error {
  override readonly name = 'FolderError';
  readonly code: FolderErrorCode;

  /** @param message says what, why, and what to do next */
  constructor(code: FolderErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }

  /** Whether a later start may succeed without an operator. */
  get isTemporary(): boolean {
    return TEMPORARY.has(this.code);
  }
}

/** @returns what an operator has to do about a damaged database, as an error */
export function damagedFolder(what: string, cause: unknown): FolderError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new FolderError(
    'damaged',
    `Cannot open ${what}: it is damaged (${why}). Start with --rebuild, which puts what is in the data folder aside ` +
      'and fills an empty one from the other servers',
    { cause },
  );
}
