/** Programs that start the process of a mount, so that it has the life that the node's operator wants. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { isErrorCode, ServiceError } from '../../base/errors.ts';
import { accessTexts, optionText } from '../mounts/mount-options.ts';
import { mountVolume } from '../mounts/mount-process.ts';
import { logTail } from '../mounts/programs.ts';
import { run } from '../mounts/run-program.ts';
import { CommandFailure, generalFailure, isSystemError, temporaryFailure } from '../terminal/failure.ts';
import type { AccessFiles } from '../transport/access.ts';

/** All that a mount needs. It may be started in another container: files have the same names there. */
export interface MountOrder {
  readonly servers: readonly string[];
  readonly tree: string;
  readonly path: string;
  readonly directory: string;
  readonly options: readonly string[];
  readonly access: AccessFiles;
}

export interface Mounter {
  /** Resolves when the mount is usable. */
  mount(order: MountOrder): Promise<void>;
}

/** Longer than a mount takes to become ready, or to say why it does not. */
const START_TIMEOUT_MS = 90_000;
const ANSWER_CHARS_MAX = 64 * 1024;

/** A child of this process that outlives it, but not its container, or the service manager's stop of its unit. */
export class ProcessMounter implements Mounter {
  async mount({ tree, path, directory, servers, options, access }: MountOrder): Promise<void> {
    await mountVolume({ servers, volume: tree, path, directory, options, access });
  }
}

export interface SystemdOptions {
  /** Words of the command line of `leasehold` on the host: the unit runs there. */
  readonly program: readonly string[];
  /** Process of the host whose mount namespace has the host's systemd-run and bus; null: this one's. */
  readonly hostPid: number | null;
  readonly logs: string;
}

/** A unit of the host's systemd. */
export class SystemdMounter implements Mounter {
  readonly #options: SystemdOptions;

  constructor(options: SystemdOptions) {
    this.#options = options;
  }

  async mount(order: MountOrder): Promise<void> {
    const { hostPid, logs } = this.#options;
    const unit = unitOf(order.directory);
    const log = join(logs, `${unit}.log`);
    const enter = hostPid === null ? [] : ['nsenter', '--target', `${hostPid}`, '--mount', '--'];
    const [program = '', ...argv] = [...enter, ...this.#command(order, unit, log)];
    const result = await run(program, argv, START_TIMEOUT_MS);
    if (result.kind === 'done') return;
    if (result.kind === 'missing')
      throw generalFailure(`Cannot mount: the program ${program} is not installed`);
    throw temporaryFailure(
      `Cannot mount on "${order.directory}" by systemd: ${result.output}${await logTail(log)}`,
      `"journalctl -u ${unit}" on the host has more`,
    );
  }

  #command(
    { tree, path, directory, servers, options, access }: MountOrder,
    unit: string,
    log: string,
  ): string[] {
    const texts = [...options, optionText('servers', servers.join(';')), ...accessTexts(access)];
    return [
      'systemd-run',
      '--quiet',
      '--collect',
      `--unit=${unit}`,
      '--service-type=notify',
      '--property=NotifyAccess=all',
      // The mount stores what was written before it ends.
      '--property=TimeoutStopSec=90',
      '--property=KillMode=mixed',
      '--',
      ...this.#options.program,
      'mount',
      `${tree}:${path}`,
      directory,
      '--foreground',
      '--log',
      log,
      ...texts.flatMap((text) => ['-o', text]),
    ];
  }
}

/** @returns the unit of the mount on a directory */
export function unitOf(directory: string): string {
  return `leasehold-csi-${createHash('sha256').update(directory).digest('hex').slice(0, 16)}`;
}

/** What the launcher answers to an order, as one line of JSON. */
export type LaunchAnswer =
  | { readonly kind: 'mounted' }
  | { readonly kind: 'refused'; readonly code: string; readonly message: string }
  | { readonly kind: 'failed'; readonly exit: number; readonly message: string; readonly hint: string };

/** Another process, in another container, which starts mounts on request: `leasehold csi launcher`. */
export class LauncherMounter implements Mounter {
  readonly #socket: string;

  constructor(socket: string) {
    this.#socket = socket;
  }

  async mount(order: MountOrder): Promise<void> {
    const answer = await this.#ask(order);
    switch (answer.kind) {
      case 'mounted':
        return;
      case 'refused':
        if (isErrorCode(answer.code)) throw new ServiceError(answer.code, answer.message);
        throw generalFailure(answer.message);
      case 'failed':
        throw new CommandFailure(answer.exit, answer.message, answer.hint);
    }
  }

  async #ask(order: MountOrder): Promise<LaunchAnswer> {
    const connection = createConnection(this.#socket);
    connection.setTimeout(START_TIMEOUT_MS, () =>
      connection.destroy(new Error(`it did not answer within ${START_TIMEOUT_MS} ms`)),
    );
    try {
      await once(connection, 'connect');
      connection.write(`${JSON.stringify(order)}\n`);
      let text = '';
      for await (const chunk of connection.setEncoding('utf8')) {
        text += chunk;
        if (text.length > ANSWER_CHARS_MAX) throw new Error('its answer is too long');
      }
      if (text === '') throw new Error('it ended the connection without an answer');
      return JSON.parse(text) as LaunchAnswer;
    } catch (error) {
      const why = isSystemError(error) ? error.code : error instanceof Error ? error.message : String(error);
      throw temporaryFailure(
        `Cannot mount on "${order.directory}" by the launcher at ${this.#socket}: ${why}`,
        'check that "leasehold csi launcher" runs on this node',
      );
    } finally {
      connection.destroy();
    }
  }
}
