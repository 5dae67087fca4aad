import { constants } from 'node:os';
import type { ErrnoName } from '../../../fuse/errno.ts';

/** The error of a system call of the model; `SIGBUS` is an access to a mapped page that cannot be read. */
export type KernelErrno = ErrnoName | 'SIGBUS';

export class KernelError extends Error {
  override readonly name = 'KernelError';
  readonly errno: KernelErrno;

  constructor(errno: KernelErrno, message: string = errno) {
    super(message);
    this.errno = errno;
  }
}

/** For a promise whose failure a program ignores; other errors are mistakes of the model or the test. */
export function ignoreKernelError(error: unknown): void {
  if (!(error instanceof KernelError)) throw error;
}

/** Several names have one number on Linux; these are the ones in use here. */
const NAMES: ReadonlyMap<number, ErrnoName> = new Map(
  (Object.entries(constants.errno) as [ErrnoName, number][])
    .filter(([name]) => name !== 'EWOULDBLOCK' && name !== 'ENOTSUP')
    .map(([name, number]) => [number, name]),
);

/** @param number positive, as in <errno.h> */
export function errnoOf(number: number): ErrnoName {
  return NAMES.get(number) ?? 'EIO';
}

export type Outcome<Value> = { readonly value: Value } | { readonly errno: KernelErrno };

/**
 * @returns the value of a system call, or its error as a value; other errors are mistakes of the model or the test
 */
export async function outcomeOf<Value>(call: Promise<Value>): Promise<Outcome<Value>> {
  try {
    return { value: await call };
  } catch (error) {
    if (error instanceof KernelError) return { errno: error.errno };
    throw error;
  }
}
