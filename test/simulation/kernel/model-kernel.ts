import type { World } from '../../../base/world.ts';
import { connectKernel, type KernelConnection, type KernelDevice } from '../../../fuse/kernel/connection.ts';
import { EXPIRE_ONLY, NOTIFY, OUT_HEADER_BYTES } from '../../../fuse/kernel/protocol.ts';
import { promptAnswer } from '../../../fuse/kernel/reader-answers.ts';
import { InodesWithoutAcls } from '../../../fuse/kernel-view/inodes-without-acls.ts';
import type { MountedTransport, Transport } from '../../../fuse/transport.ts';
import { NameChanges } from './changes.ts';
import { type ClientOptions, FuseClient } from './fuse-client.ts';
import { KernelError } from './kernel-error.ts';
import { readLong } from './messages.ts';
import { Names } from './names.ts';
import { OpenFiles } from './open-file.ts';
import type { Credentials } from './permissions.ts';
import { type Machine, Process } from './process.ts';
import { type QueueOptions, RequestQueue } from './request-queue.ts';

const FIRST_PID = 1000;
export const ROOT: Credentials = { uid: 0, gid: 0, groups: [0] };

export interface ModelKernelOptions extends QueueOptions, ClientOptions {}

/**
 * What Linux does above one FUSE file system: a model of fs/namei.c, fs/dcache.c, mm/filemap.c and fs/fuse of Linux
 * 6.18, for the flags that this project's mount returns to INIT. It uses the kernel's protocol in bytes, so that the
 * whole mount runs below it, from `connectKernel` on. It has no write-back cache (FUSE_WRITEBACK_CACHE), no devices,
 * fifos and sockets, no capabilities other than root's, and no memory pressure (except `shrink`).
 */
export class ModelKernel implements Machine {
  readonly client: FuseClient;
  readonly names: Names;
  readonly files: OpenFiles;
  readonly changes: NameChanges;
  readonly #queue: RequestQueue;
  readonly #processes = new Map<number, Process>();
  readonly #ended = Promise.withResolvers<void>();
  #connection: KernelConnection | null = null;
  #pid = FIRST_PID;

  constructor(world: World, options: ModelKernelOptions = {}) {
    this.#queue = new RequestQueue(world, options);
    this.client = new FuseClient(world, this.#queue, options);
    this.names = new Names(this.client);
    this.files = new OpenFiles(this.client, this.names);
    this.changes = new NameChanges(this.client, this.names, this.files);
  }

  /** How a file system is mounted here: once, and without a directory. */
  readonly transport: Transport = async (_directory, calls, options) => {
    const device: KernelDevice = {
      send: (pieces) => this.#queue.reply(pieces),
      // Another thread writes it, after the replies that were written before.
      notify: (pieces, done) => {
        options.world.soon(() => {
          this.#notice(Buffer.concat(pieces)).then(
            (isKnown) => done(isKnown ? null : failure('ENOENT')),
            (error: unknown) => done(error instanceof KernelError ? failure(error.errno) : (error as Error)),
          );
        });
      },
      signals: (pid) => this.#processes.get(pid)?.pending ?? 'killed',
    };
    const lists = options.acls
      ? new InodesWithoutAcls(InodesWithoutAcls.memory(), () => options.world.nowMs())
      : null;
    const connection = connectKernel(device, calls, options, lists);
    this.#connection = connection;
    this.#queue.connect((bytes) => {
      const prompt = lists === null ? null : promptAnswer(bytes, lists);
      if (prompt === null) connection.receive(bytes);
      else this.#queue.reply([prompt]);
    });
    await Promise.all([connection.started, this.client.start()]);
    const mounted: MountedTransport = {
      ...connection.notices,
      ended: this.#ended.promise,
      unmount: () => this.unmount(),
    };
    return mounted;
  };

  /** Ends the processes, forgets names, and ends the connection. */
  async unmount(): Promise<void> {
    await this.endProcesses();
    this.shrink();
    this.abort();
    await this.#ended.promise;
  }

  async endProcesses(): Promise<void> {
    for (const process of [...this.#processes.values()]) await process.exit();
  }

  /** The file system has ended: calls fail. */
  abort(): void {
    this.#queue.abort();
    this.#connection?.stop();
    this.#ended.resolve();
  }

  process(who: Credentials = ROOT): Process {
    return new Process(this, who);
  }

  /** Forgets unused names and inodes, as under memory pressure. */
  shrink(): void {
    if (this.client.hasBegun) this.client.dentries.shrink(this.client.dentries.root);
  }

  nextPid(): number {
    this.#pid++;
    return this.#pid;
  }

  started(process: Process): void {
    this.#processes.set(process.pid, process);
  }

  ended(process: Process): void {
    this.#processes.delete(process.pid);
  }

  /** fuse_notify; @returns false if the kernel does not know the inode */
  async #notice(bytes: Buffer): Promise<boolean> {
    if (!this.#queue.isConnected) return true;
    const code = bytes.readInt32LE(4);
    const node = readLong(bytes, OUT_HEADER_BYTES);
    const offset = Number(bytes.readBigInt64LE(OUT_HEADER_BYTES + 8));
    if (code === NOTIFY.invalidateInode) {
      const length = Number(bytes.readBigInt64LE(OUT_HEADER_BYTES + 16));
      return this.client.invalidateInode(node, offset, length);
    }
    if (code === NOTIFY.invalidateEntry) return this.#noticeOfName(node, bytes);
    if (code === NOTIFY.store) return this.client.store(node, offset, bytes.subarray(OUT_HEADER_BYTES + 24));
    throw new KernelError('EINVAL', `Notice ${code} is not modelled`);
  }

  /** fuse_notify_inval_entry */
  async #noticeOfName(node: number, bytes: Buffer): Promise<boolean> {
    const [nameBytes, flags] = [8, 12].map((at) => bytes.readUInt32LE(OUT_HEADER_BYTES + at));
    const name = bytes.subarray(OUT_HEADER_BYTES + 16, bytes.length - 1);
    if (flags !== EXPIRE_ONLY || name.length !== nameBytes)
      throw new KernelError('EINVAL', 'The mount has names expire, and drops none');
    return this.client.expireName(node, name.toString());
  }
}

function failure(code: string): NodeJS.ErrnoException {
  return Object.assign(new Error(code), { code });
}
