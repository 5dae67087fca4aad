/** How calls fail: the status codes of gRPC, as the CSI specification assigns them. */
import type { status } from '@grpc/grpc-js';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import {
  CommandFailure,
  EXIT_NOT_FOUND,
  EXIT_PRECONDITION,
  EXIT_TEMPORARY,
  EXIT_USAGE,
  isSystemError,
  systemReason,
} from '../terminal/failure.ts';

export type StatusName = Exclude<keyof typeof status, 'OK' | 'CANCELLED' | 'UNKNOWN'>;

/** A call that failed by a rule of the CSI specification. */
export class CallFailure extends Error {
  override readonly name = 'CallFailure';
  readonly code: StatusName;

  /** @param message what failed, why, and what to do: it is shown among the events of a claim or pod */
  constructor(code: StatusName, message: string) {
    super(message);
    this.code = code;
  }
}

const EXIT_UNAUTHORIZED = 6;

const CODES: Readonly<Record<ErrorCode, StatusName>> = {
  'bad-request': 'INVALID_ARGUMENT',
  unauthorized: 'UNAUTHENTICATED',
  forbidden: 'PERMISSION_DENIED',
  'not-found': 'NOT_FOUND',
  exists: 'ALREADY_EXISTS',
  'not-directory': 'FAILED_PRECONDITION',
  'is-directory': 'FAILED_PRECONDITION',
  'not-empty': 'FAILED_PRECONDITION',
  'precondition-failed': 'FAILED_PRECONDITION',
  'range-unsatisfiable': 'OUT_OF_RANGE',
  'digest-mismatch': 'DATA_LOSS',
  'name-too-long': 'INVALID_ARGUMENT',
  'symlink-loop': 'FAILED_PRECONDITION',
  'cross-volume': 'FAILED_PRECONDITION',
  junction: 'FAILED_PRECONDITION',
  attached: 'FAILED_PRECONDITION',
  'too-many-links': 'FAILED_PRECONDITION',
  'no-attribute': 'NOT_FOUND',
  'too-large': 'RESOURCE_EXHAUSTED',
  'read-only': 'FAILED_PRECONDITION',
  protected: 'FAILED_PRECONDITION',
  sealed: 'FAILED_PRECONDITION',
  'session-expired': 'ABORTED',
  'lease-taken': 'ABORTED',
  'lease-lost': 'ABORTED',
  'fence-lost': 'ABORTED',
  locked: 'ABORTED',
  deadlock: 'ABORTED',
  'lock-limit': 'RESOURCE_EXHAUSTED',
  'not-primary': 'UNAVAILABLE',
  'no-majority': 'UNAVAILABLE',
  recovering: 'UNAVAILABLE',
  busy: 'UNAVAILABLE',
  moving: 'UNAVAILABLE',
  unknown: 'UNAVAILABLE',
  'clock-fault': 'UNAVAILABLE',
  'no-space': 'RESOURCE_EXHAUSTED',
  'quota-exceeded': 'RESOURCE_EXHAUSTED',
  integrity: 'DATA_LOSS',
  storage: 'INTERNAL',
  internal: 'INTERNAL',
};

const CODES_OF_EXITS: Readonly<Record<number, StatusName>> = {
  [EXIT_USAGE]: 'INVALID_ARGUMENT',
  [EXIT_NOT_FOUND]: 'NOT_FOUND',
  [EXIT_PRECONDITION]: 'FAILED_PRECONDITION',
  [EXIT_TEMPORARY]: 'UNAVAILABLE',
  [EXIT_UNAUTHORIZED]: 'PERMISSION_DENIED',
};

/** @returns status and message for an error of a handler */
export function statusOf(error: unknown): { readonly code: StatusName; readonly message: string } {
  if (error instanceof CallFailure) return { code: error.code, message: error.message };
  if (error instanceof ServiceError) return { code: CODES[error.code], message: error.message };
  if (error instanceof CommandFailure) {
    const { exit, message, hint } = error;
    return {
      code: CODES_OF_EXITS[exit] ?? 'INTERNAL',
      message: hint === '' ? message : `${message}; ${hint}`,
    };
  }
  if (isSystemError(error)) {
    const path = error.path === undefined ? '' : ` "${error.path}"`;
    return { code: 'INTERNAL', message: `Cannot ${error.syscall ?? 'use'}${path}: ${systemReason(error)}` };
  }
  return { code: 'INTERNAL', message: error instanceof Error ? error.message : String(error) };
}

export function invalid(message: string): CallFailure {
  return new CallFailure('INVALID_ARGUMENT', message);
}

export function isNotFound(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'not-found';
}

/** @throws whatever is not `not-found`; for `catch` */
export function nullIfNotFound(error: unknown): null {
  if (isNotFound(error)) return null;
  throw error;
}
