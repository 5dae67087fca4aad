import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePorts } from '../../client/dev/free-ports.ts';
import { type RunResult, run, runOk } from '../cluster/cluster-mount.ts';
import { until } from '../cluster/real-cluster.ts';
import { isListening } from './ganesha.ts';
import { LineClient } from './line-client.ts';

const PACKAGED = new URL('../../packaging/samba/smb.conf', import.meta.url);
const PASSWORD = 'only-for-this-test';
const SHARE = 'main';
/** Folders that Samba else has in /var and /run. */
const FOLDERS = [
  'private dir',
  'lock directory',
  'state directory',
  'cache directory',
  'pid directory',
  'ncalrpc dir',
];

/** Samba with the packaged configuration on a mount, and its clients. */
export class Samba {
  readonly #folder: string;
  readonly port: number;
  readonly #clients: LineClient[] = [];
  #child: ChildProcess | null = null;

  private constructor(folder: string, port: number) {
    this.#folder = folder;
    this.port = port;
  }

  /** @param users accounts of this machine that may connect; all have the same password */
  static async start(folder: string, directory: string, users: readonly string[]): Promise<Samba> {
    const [port] = await freePorts(1);
    const samba = new Samba(join(folder, 'samba'), port as number);
    mkdirSync(samba.#folder);
    writeFileSync(samba.#file, samba.#configuration(directory, users));
    for (const user of users) {
      const script = 'printf "%s\\n%s\\n" "$1" "$1" | smbpasswd -c "$2" -s -a "$3"';
      await runOk('sh', ['-c', script, 'sh', PASSWORD, samba.#file, user]);
    }
    await samba.restart();
    return samba;
  }

  get #file(): string {
    return join(this.#folder, 'smb.conf');
  }

  #configuration(directory: string, users: readonly string[]): string {
    const packaged = readFileSync(PACKAGED, 'utf8');
    const replaced = packaged
      .replaceAll('/mnt/main', directory)
      .replace(/valid users = .*/, `valid users = ${users.join(' ')}`);
    const own = FOLDERS.map((name) => {
      const path = join(this.#folder, name.replaceAll(' ', '-'));
      mkdirSync(path, { mode: 0o700 });
      return `\t${name} = ${path}`;
    });
    const log = `\tlog file = ${join(this.#folder, 'log')}`;
    const network = `\tsmb ports = ${this.port}\n\tinterfaces = 127.0.0.1\n\tbind interfaces only = yes`;
    return replaced.replace('[global]', ['[global]', ...own, log, network].join('\n'));
  }

  /** Starts it, again if it runs. */
  async restart(): Promise<void> {
    await this.kill();
    const argv = ['-F', '--no-process-group', '-s', this.#file];
    // Its processes for connections are in its group.
    const child = spawn('smbd', argv, { cwd: '/', stdio: 'ignore', detached: true });
    this.#child = child;
    await until('Samba serves', async () => {
      assert.equal(child.exitCode, null, `Samba has ended, see ${this.#folder}/log`);
      return isListening(this.port);
    });
  }

  /** Runs commands of smbclient. */
  smbclient(user: string, commands: string): Promise<RunResult> {
    return run('smbclient', [
      `//127.0.0.1/${SHARE}`,
      ...['-s', this.#file, '-p', String(this.port), '-U', `${user}%${PASSWORD}`, '-c', commands],
    ]);
  }

  async smbclientOk(user: string, commands: string): Promise<string> {
    const { code, text } = await this.smbclient(user, commands);
    assert.equal(code, 0, text);
    assert.doesNotMatch(text, /NT_STATUS/);
    return text;
  }

  smbtorture(user: string, suite: string): Promise<RunResult> {
    const argv = [
      `//127.0.0.1/${SHARE}`,
      '-s',
      this.#file,
      '-p',
      String(this.port),
      `-U${user}%${PASSWORD}`,
      suite,
    ];
    return run('smbtorture', argv, { timeoutMs: 300_000 });
  }

  client(python: string, user: string): LineClient {
    const client = new LineClient(python, 'smb-client.py', String(this.port), user, PASSWORD, SHARE);
    this.#clients.push(client);
    return client;
  }

  /** Ends it as a power failure does. */
  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    process.kill(-child.pid, 'SIGKILL');
    await once(child, 'exit');
  }

  async stop(): Promise<void> {
    for (const client of this.#clients) client.stop();
    await this.kill();
  }
}
