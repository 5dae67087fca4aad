import { constants } from 'node:fs';
import type { Outcome as CallOutcome } from '../../posix/program.ts';
import { KernelError } from './kernel-error.ts';
import type { Mapping } from './mapping.ts';
import type { Inode64 } from './messages.ts';
import type { ModelKernel } from './model-kernel.ts';
import type { Credentials } from './permissions.ts';
import { type LockType, O_PATH, type Process } from './process.ts';

const TYPES: Readonly<Record<number, string>> = {
  [constants.S_IFREG]: 'file',
  [constants.S_IFDIR]: 'directory',
  [constants.S_IFLNK]: 'symlink',
  [constants.S_IFIFO]: 'fifo',
  [constants.S_IFSOCK]: 'socket',
  [constants.S_IFCHR]: 'character',
  [constants.S_IFBLK]: 'block',
};
const NULL_DEVICE = 0x103;
const LOCK_END = 0x7fff_ffff_ffff_ffffn;
type Words = readonly string[];
type Calls = Readonly<Record<string, (...words: string[]) => Promise<unknown> | unknown>>;

/** The flags of `chattr` and `lsattr`. */
const INODE_FLAGS: Readonly<Record<string, number>> = { immutable: 0x10, 'append-only': 0x20 };

/** `CAPABILITY` of calls.py. */
const CAPABILITY = Buffer.from(Uint32Array.of(0x0200_0001, 1 << 13, 0, 0, 0).buffer);

/** A process of the model that makes the calls of `test/posix/calls.py`, with the same words and answers. */
export class ModelProgram {
  readonly process: Process;
  readonly #prefix: string;
  readonly #files = new Map<string, number>();
  readonly #mappings = new Map<string, Mapping>();
  readonly #calls: Calls;
  #last: Promise<unknown> = Promise.resolve();

  /** @param prefix a directory of this machine that stands for the root of the mount */
  constructor(kernel: ModelKernel, who: Credentials, prefix = '') {
    this.process = kernel.process(who);
    this.#prefix = prefix;
    this.#calls = this.#table();
  }

  /** Makes a call, after all earlier ones. */
  call(call: string, ...values: readonly (string | number)[]): Promise<CallOutcome> {
    const outcome = this.#last.then(() => this.#answer(call, values.map(String)));
    this.#last = outcome;
    return outcome;
  }

  stop(): Promise<void> {
    return this.process.exit();
  }

  async #answer(call: string, values: Words): Promise<CallOutcome> {
    const run = this.#calls[call];
    if (run === undefined) return { errno: `${call} is not modelled` };
    try {
      const value = await run(...values);
      return { value: value === undefined || value === null ? '' : String(value) };
    } catch (error) {
      if (error instanceof KernelError) return { errno: error.errno };
      throw error;
    }
  }

  #path(path: string): string {
    if (this.#prefix === '' || !path.startsWith(this.#prefix)) return path;
    return path.slice(this.#prefix.length) || '/';
  }

  #file(name: string): number {
    const descriptor = this.#files.get(name);
    if (descriptor === undefined) throw new KernelError('EBADF');
    return descriptor;
  }

  #table(): Calls {
    const process = this.process;
    const at = (path: string): string => this.#path(path);
    const file = (name: string): number => this.#file(name);
    const stats = async (attributes: Promise<Inode64>, wanted: string): Promise<string> =>
      fieldsOf(await attributes, wanted);
    const opened = async <Value>(
      path: string,
      flags: number,
      run: (descriptor: number) => Promise<Value>,
      mode = 0o644,
    ): Promise<Value> => {
      const descriptor = await process.open(at(path), flags, mode);
      try {
        return await run(descriptor);
      } finally {
        await process.close(descriptor);
      }
    };
    // As Python maps a whole file: through a descriptor of its own, which it closes before the unmap.
    const mapped = (
      path: string,
      isWritten: boolean,
      run: (mapping: Mapping, size: number) => Promise<unknown>,
    ) =>
      opened(path, isWritten ? constants.O_RDWR : constants.O_RDONLY, async (descriptor) => {
        const { sizeBytes } = await process.fstat(descriptor);
        if (sizeBytes === 0) throw new KernelError('EINVAL');
        const own = process.dup(descriptor);
        const mapping = await process.mmap(own, { writable: isWritten });
        try {
          return await run(mapping, sizeBytes);
        } finally {
          await process.close(own);
          await mapping.unmap();
        }
      });
    const make = (path: string, mode: string): Promise<void> =>
      opened(
        path,
        constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY,
        async () => undefined,
        octal(mode),
      );
    const put = (path: string, text: string): Promise<void> =>
      opened(path, constants.O_CREAT | constants.O_TRUNC | constants.O_WRONLY, async (descriptor) => {
        await process.write(descriptor, Buffer.from(text));
      });
    const makeNode = (path: string, type: number, mode: number, device = 0): Promise<void> =>
      process.mknod(at(path), type | mode, device);
    const calls: Calls = {
      access: (path = '', mode = '0') => process.access(at(path), Number(mode)),
      bind: async (path = '') => {
        try {
          await process.bind(at(path));
        } catch (error) {
          throw error instanceof KernelError && error.errno === 'EEXIST'
            ? new KernelError('EADDRINUSE')
            : error;
        }
      },
      chattr: (path = '', ...flags: string[]) =>
        opened(path, constants.O_RDONLY | constants.O_NONBLOCK, (descriptor) =>
          process.setInodeFlags(descriptor, inodeFlagsOf(flags)),
        ),
      chdir: (path = '') => process.chdir(path === '/' ? '/' : at(path)),
      chmod: (path = '', mode = '') => process.chmod(at(path), octal(mode)),
      chown: (path = '', uid = '', gid = '') => process.chown(at(path), Number(uid), Number(gid)),
      close: (name = '') => {
        const descriptor = file(name);
        this.#files.delete(name);
        return process.close(descriptor);
      },
      copy: async (from = '', offset = '', to = '', toOffset = '', length = '') =>
        process.copyRange(file(from), Number(offset), file(to), Number(toOffset), Number(length)),
      create: (path = '', mode = '0644') => make(path, mode),
      dup: (name = '', other = '') => void this.#files.set(other, process.dup(file(name))),
      fallocate: (name = '', mode = '', offset = '', length = '') =>
        process.fallocate(file(name), Number(mode), Number(offset), Number(length)),
      fchattr: (name = '', ...flags: string[]) => process.setInodeFlags(file(name), inodeFlagsOf(flags)),
      fchmod: (name = '', mode = '') => process.fchmod(file(name), octal(mode)),
      fchown: (name = '', uid = '', gid = '') => process.fchown(file(name), Number(uid), Number(gid)),
      fill: async (path = '', prefix = '', first = '', count = '') => {
        for (let number = Number(first); number < Number(first) + Number(count); number++) {
          const name = `${prefix}${String(number).padStart(7, '0')}`;
          await opened(`${path}/${name}`, constants.O_CREAT | constants.O_WRONLY, async () => undefined);
        }
      },
      flock: (name = '', type = '', waits = 'no') =>
        process.flock(file(name), type as LockType, waits !== 'no'),
      fstat: (name = '', wanted = '') => stats(process.fstat(file(name)), wanted),
      fsync: (name = '') => process.fsync(file(name)),
      ftruncate: (name = '', size = '') => process.ftruncate(file(name), Number(size)),
      futimens: (name = '', accessed = '', modified = '') =>
        process.futimens(file(name), timeOf(accessed), timeOf(modified)),
      // Python queries the file twice, and reads until there are no more bytes.
      get: (path = '') =>
        opened(path, constants.O_RDONLY, async (descriptor) => {
          // Python: `io.open` refuses a directory before it reads.
          if ((await process.fstat(descriptor)).mode >> 12 === constants.S_IFDIR >> 12)
            throw new KernelError('EISDIR');
          const { sizeBytes } = await process.fstat(descriptor);
          const parts: Buffer[] = [];
          for (let length = sizeBytes + 1; ; length = 256 * 1024) {
            const bytes = await process.read(descriptor, length);
            if (bytes.length === 0) return Buffer.concat(parts).toString('latin1');
            parts.push(bytes);
          }
        }),
      getxattr: async (path = '', name = '') => (await process.getxattr(at(path), name)).toString(),
      lchown: (path = '', uid = '', gid = '') => process.chown(at(path), Number(uid), Number(gid), false),
      link: (from = '', to = '', how = 'nofollow') => process.link(at(from), at(to), how === 'follow'),
      list: async (path = '') =>
        (await process.list(at(path)))
          .map(({ name }) => name)
          .sort()
          .join(' '),
      listxattr: async (path = '') => {
        const names = await process.listxattr(at(path), false);
        return names
          .filter((name) => /^(user|trusted)\./.test(name))
          .sort()
          .join(' ');
      },
      lock: (name = '', type = '', start = '0', length = '0', waits = 'no') =>
        process.lock(file(name), rangeOf(type, start, length), waits !== 'no' || type === 'unlock'),
      'lock-holder': async (name = '', type = '', start = '0', length = '0') => {
        const holder = await process.lockHolder(file(name), rangeOf(type, start, length));
        return holder === null
          ? 'none'
          : `${holder.type} ${holder.start} ${holder.end === LOCK_END ? 'end' : holder.end}`;
      },
      lsattr: (path = '') =>
        opened(path, constants.O_RDONLY | constants.O_NONBLOCK, async (descriptor) => {
          const bits = await process.inodeFlags(descriptor);
          return Object.keys(INODE_FLAGS)
            .filter((flag) => (bits & (INODE_FLAGS[flag] ?? 0)) !== 0)
            .join(' ');
        }),
      lseek: (name = '', offset = '', whence = '') =>
        process.seek(file(name), Number(offset), Number(whence)),
      lstat: (path = '', wanted = '') => stats(process.lstat(at(path)), wanted),
      lutimens: (path = '', accessed = '', modified = '') =>
        process.utimens(at(path), timeOf(accessed), timeOf(modified), false),
      make: (path = '', kind = '') => {
        if (kind === 'file') return make(path, '0644');
        if (kind === 'directory') return process.mkdir(at(path), 0o777);
        if (kind === 'fifo') return makeNode(path, constants.S_IFIFO, 0o666);
        if (kind === 'socket') return calls.bind?.(path);
        if (kind === 'symlink') return process.symlink('nowhere', at(path));
        return makeNode(
          path,
          kind === 'character' ? constants.S_IFCHR : constants.S_IFBLK,
          0o644,
          NULL_DEVICE,
        );
      },
      // A mapping that stays; `calls.py` has none.
      map: async (name = '', path = '') => {
        const descriptor = await process.open(at(path), constants.O_RDONLY);
        this.#mappings.set(name, await process.mmap(descriptor, { writable: false }));
        await process.close(descriptor);
      },
      'map-read': async (name = '', offset = '', length = '') =>
        (await this.#mappings.get(name)?.read(Number(offset), Number(length)))?.toString('latin1'),
      'mapped-read': (path = '', offset = '', length = '') =>
        mapped(path, false, async (mapping, size) => {
          const count = Math.max(0, Math.min(Number(length), size - Number(offset)));
          return (await mapping.read(Number(offset), count)).toString('latin1');
        }),
      'mapped-write': (path = '', offset = '', text = '') =>
        mapped(path, true, async (mapping, size) => {
          // Python refuses a slice of another length than the bytes.
          if (Number(offset) + text.length > size) throw new KernelError('EINVAL');
          await mapping.write(Number(offset), Buffer.from(text, 'latin1'));
          await mapping.sync();
        }),
      mkdir: (path = '', mode = '0755') => process.mkdir(at(path), octal(mode)),
      mkfifo: (path = '', mode = '0644') => makeNode(path, constants.S_IFIFO, octal(mode)),
      open: async (name = '', path = '', flags = '', mode = '0644') =>
        void this.#files.set(name, await process.open(at(path), flagsOf(flags), octal(mode))),
      pread: async (name = '', length = '', offset = '') =>
        (await process.pread(file(name), Number(length), Number(offset))).toString('latin1'),
      put,
      pwrite: (name = '', text = '', offset = '') =>
        process.pwrite(file(name), Buffer.from(text, 'latin1'), Number(offset)),
      read: async (name = '', length = '') =>
        (await process.read(file(name), Number(length))).toString('latin1'),
      readlink: (path = '') => process.readlink(at(path)),
      removexattr: (path = '', name = '') => process.removexattr(at(path), name),
      rename: (from = '', to = '') => process.rename(at(from), at(to)),
      'rename-with': (from = '', to = '', flags = '') => process.rename(at(from), at(to), Number(flags)),
      reopen: async (name = '', from = '', flags = '') =>
        void this.#files.set(name, await process.reopen(file(from), flagsOf(flags))),
      rmdir: (path = '') => process.rmdir(at(path)),
      'set-flags': (name = '', flags = '') => process.setFlags(file(name), flagsOf(flags)),
      setcap: (path = '') => process.setxattr(at(path), 'security.capability', CAPABILITY),
      setxattr: (path = '', name = '', value = '', flags = '0') =>
        process.setxattr(at(path), name, Buffer.from(value), Number(flags)),
      stat: (path = '', wanted = '') => stats(process.stat(at(path)), wanted),
      symlink: (target = '', path = '') => process.symlink(target, at(path)),
      truncate: (path = '', size = '') => process.truncate(at(path), Number(size)),
      umask: (mode = '') => process.umask(octal(mode)),
      unlink: (path = '') => process.unlink(at(path)),
      utimens: (path = '', accessed = '', modified = '') =>
        process.utimens(at(path), timeOf(accessed), timeOf(modified)),
      write: (name = '', text = '') => process.write(file(name), Buffer.from(text, 'latin1')),
    };
    return calls;
  }
}

function fieldsOf(attributes: Inode64, wanted: string): string {
  const { mode, links, uid, gid, sizeBytes, inode, accessedNs, modifiedNs, changedNs, device, sectors } =
    attributes;
  const known: Readonly<Record<string, string | number | bigint>> = {
    type: TYPES[mode & constants.S_IFMT] ?? 'unknown',
    mode: (mode & 0o7777).toString(8).padStart(4, '0'),
    ...{ links, uid, gid, size: sizeBytes, inode, device, blocks: sectors },
    ...{ accessed: accessedNs, modified: modifiedNs, changed: changedNs },
    read: accessedNs > modifiedNs ? 'yes' : 'no',
  };
  return wanted
    .split(',')
    .map((field) => String(known[field]))
    .join(' ');
}

function flagsOf(text: string): number {
  return text.split('|').reduce((flags, name) => {
    const flag =
      name === 'path' ? O_PATH : (constants as Readonly<Record<string, number>>)[`O_${name.toUpperCase()}`];
    if (flag === undefined) throw new Error(`O_${name} is no flag of open`);
    return flags | flag;
  }, 0);
}

function inodeFlagsOf(names: Words): number {
  return names.reduce((bits, name) => bits | (INODE_FLAGS[name] ?? 0), 0);
}

function octal(text: string): number {
  return Number.parseInt(text, 8);
}

function rangeOf(type: string, start: string, length: string) {
  const from = BigInt(start);
  return { type: type as LockType, start: from, end: length === '0' ? LOCK_END : from + BigInt(length) - 1n };
}

function timeOf(text: string): bigint | 'now' | null {
  if (text === 'now') return 'now';
  if (text === 'omit') return null;
  const [seconds = '0', nanoseconds = '0'] = text.split('.');
  return BigInt(seconds) * 1_000_000_000n + BigInt(nanoseconds.padEnd(9, '0'));
}
