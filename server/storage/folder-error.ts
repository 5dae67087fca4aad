export type FolderErrorCode =
  | 'locked'
  | 'foreign'
  | 'wrong-cluster'
  | 'wrong-server'
  | 'unknown-format'
  | 'not-writable'
  | 'damaged';

/** The data folder cannot be used, and only whoever started the server can change that: it exits with 2. */
export class FolderError extends Error {
  override readonly name = 'FolderError';
  readonly code: FolderErrorCode;

  /** @param message says what, why, and what to do next */
  constructor(code: FolderErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
