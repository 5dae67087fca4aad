export type FolderErrorCode =
  | 'locked'
  | 'foreign'
  | 'wrong-cluster'
  | 'wrong-server'
  | 'unknown-format'
  | 'not-writable'
  | 'no-space'
  | 'damaged';

/** These end without an operator: the other process ends, or space becomes free. */
const TEMPORARY: ReadonlySet<FolderErrorCode> = new Set(['locked', 'no-space']);

export class FolderError extends Error {
  override readonly name = 'FolderError';
  readonly code: FolderErrorCode;

  constructor(code: FolderErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }

  get isTemporary(): boolean {
    return TEMPORARY.has(this.code);
  }
}

export function damagedFolder(what: string, cause: unknown): FolderError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new FolderError(
    'damaged',
    `Cannot open ${what}: it is damaged (${why}). Start with --rebuild, which moves the data folder's ` +
      'contents aside and re-creates all replicas from the other servers',
    { cause },
  );
}
