import { CommanderError } from 'commander';
import { ERRORS, type ErrorCode, ServiceError } from '../../base/errors.ts';

/** A command that failed for a local reason. */
export class CommandFailure extends Error {
  override readonly name = 'CommandFailure';
  readonly exit: number;
  /** What to do next, in a sentence without a period; may be empty. */
  readonly hint: string;

  /** @param message what failed and why: `Cannot read "a.txt": it is a directory` */
  constructor(exit: number, message: string, hint = '', options?: ErrorOptions) {
    super(message, options);
    this.exit = exit;
    this.hint = hint;
  }
}

export const EXIT_FAILED = 1;
export const EXIT_USAGE = 2;
export const EXIT_NOT_FOUND = 3;
export const EXIT_PRECONDITION = 4;
export const EXIT_TEMPORARY = 5;
export const EXIT_UNAUTHORIZED = 6;
export const EXIT_DEGRADED = 7;

const failureWith =
  (exit: number) =>
  (message: string, hint?: string, options?: ErrorOptions): CommandFailure =>
    new CommandFailure(exit, message, hint, options);

export const generalFailure = failureWith(EXIT_FAILED);
export const usageFailure = failureWith(EXIT_USAGE);
export const notFoundFailure = failureWith(EXIT_NOT_FOUND);
export const preconditionFailure = failureWith(EXIT_PRECONDITION);
export const temporaryFailure = failureWith(EXIT_TEMPORARY);

/** For `Command.exitOverride`: wrong usage, for which commander has 1, ends with this code. */
export function usageExit(exit: number): (error: CommanderError) => never {
  return (error) => {
    throw error.exitCode === 0 ? error : new CommanderError(exit, error.code, error.message);
  };
}

const HINTS: Partial<Record<ErrorCode, string>> = {
  unauthorized:
    'give a token with --token-file or LEASEHOLD_TOKEN, and the CA certificate of the servers with --ca or LEASEHOLD_CA',
  forbidden:
    'use a token with a higher role, or one for this volume; "leasehold token ls" shows the role and volumes of each',
  'not-found': '"leasehold volume ls" and "leasehold ls VOLUME:/" list volumes and files',
  'not-empty': 'remove what is in it first, or use "leasehold rm --recursive"',
  'no-majority':
    '"leasehold status" shows which servers answer; start the others, or name the cluster with --servers',
  recovering:
    'the servers wait until leases from before their restart have ended; try again after one lease time',
  busy: 'try again in a moment',
  unknown: 'check whether it was executed before you try again',
  'session-expired': 'try again',
  sealed: 'store the new contents as a new file: "leasehold put" replaces the old one under its name',
  'clock-fault': 'synchronize the clocks of the servers (NTP); "leasehold status" shows which one is off',
  'quota-exceeded':
    'remove files, empty the trash ("leasehold trash empty NAME"), or raise the quota with "leasehold volume set NAME --quota SIZE" or, of a directory, "leasehold quota set"; "leasehold volume ls" and "leasehold quota ls" show them',
  'no-space': '"leasehold status" shows the free space of each server; remove files, or add servers',
  integrity:
    'the data is damaged on all replicas that answered; start the missing servers: one of them may have an undamaged replica',
  'cross-volume':
    '"leasehold cp" copies between volumes and directories with a quota, with --recursive a directory',
};

const NO_SNAPSHOT = /no snapshot ".*" of volume "(.*)"/;
const UNKNOWN_KIND = /is of the unknown kind "/;

/** @returns the exit code for an error, and the lines to print */
export function describeFailure(error: unknown): {
  readonly exit: number;
  readonly lines: readonly string[];
} {
  if (error instanceof CommandFailure) return lines(error.exit, error.message, error.hint);
  if (error instanceof ServiceError) {
    const { unreachable } = error.details;
    const missing =
      unreachable === undefined ||
      unreachable.length === 0 ||
      unreachable.every((id) => error.message.includes(id))
        ? ''
        : ` (not reachable: ${unreachable.join(', ')})`;
    return lines(ERRORS[error.code].exit, error.message + missing, hintOf(error));
  }
  if (isSystemError(error)) {
    const path = error.path === undefined ? '' : ` "${error.path}"`;
    return lines(
      error.code === 'ENOENT' ? EXIT_NOT_FOUND : EXIT_FAILED,
      `Cannot ${error.syscall ?? 'use'}${path}: ${systemReason(error)}`,
      '',
    );
  }
  // Unexpected, so the stack is what helps.
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return lines(EXIT_FAILED, text, '');
}

function hintOf({ code, message }: ServiceError): string {
  if (UNKNOWN_KIND.test(message))
    return 'the server that was asked is of an earlier release: upgrade all servers';
  const [, volume] = NO_SNAPSHOT.exec(message) ?? [];
  if (volume !== undefined) return `"leasehold snapshot ls ${volume}" lists the snapshots`;
  return HINTS[code] ?? '';
}

function lines(exit: number, message: string, hint: string) {
  const said = `leasehold: ${message}`;
  return { exit, lines: hint === '' ? [said] : [said, `  ${hint}`] };
}

const OF_ONE_NAME: ReadonlySet<ErrorCode> = new Set([
  'bad-request',
  'name-too-long',
  'not-found',
  'not-directory',
  'is-directory',
  'symlink-loop',
  'exists',
  'too-many-links',
]);

/** @returns whether the failure concerns one file of many, so that the others can be copied */
export function isOfOneFile(error: unknown): error is ServiceError {
  return error instanceof ServiceError && OF_ONE_NAME.has(error.code);
}

export function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && 'errno' in error;
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or directory',
  EACCES: 'permission denied',
  EPERM: 'not permitted',
  EISDIR: 'it is a directory',
  ENOTDIR: 'it is not a directory',
  ENOSPC: 'the disk is full',
  EEXIST: 'it exists already',
  EROFS: 'the file system is read-only',
  ENOTCONN: 'the mount there is dead; "leasehold mount" replaces it, "leasehold umount" removes it',
};

export function systemReason(error: NodeJS.ErrnoException): string {
  return REASONS[error.code ?? ''] ?? error.message;
}
