import type { Answered } from '../answered.ts';
import { ErrnoError } from '../errno.ts';
import { RENAME_EXCHANGE, soughtBy } from '../transport/stat.ts';
import type { FileSystemCalls } from '../transport.ts';
import { decodeFlags, encodeFlags, flagsFormOf } from './ioctls.ts';
import type { NodeNumbers } from './replies.ts';
import { putIoctl, putLockHolder, putOpened, putSpace } from './replies.ts';
import { callerOf, type DecodedRequest, type RequestAnswers, type RequestOf } from './request-answers.ts';
import type { Request } from './requests.ts';

/** Requests that the session handles itself. */
export type SessionKind = 'init' | 'destroy' | 'interrupt' | 'forget' | 'unknown';
export type Handlers<Kind extends Request['kind'] = Request['kind']> = {
  readonly [Of in Kind]: (call: DecodedRequest<RequestOf<Of>>) => void;
};

/** @param changedXattr called before a change of an extended attribute is answered, whatever its outcome */
export function handlersOf(
  calls: FileSystemCalls,
  answers: RequestAnswers,
  numbers: NodeNumbers,
  changedXattr: () => void,
): Handlers<Exclude<Request['kind'], SessionKind>> {
  return {
    lookup(call) {
      const { name } = call.request;
      answers.entry(call, name, () => calls.lookup(call.inode, name, call.header.pid));
    },
    attributes: (call) =>
      answers.attributes(call, () =>
        call.request.withCreation === true
          ? calls.attributesWithCreation(call.inode)
          : calls.attributes(call.inode),
      ),
    'set-attributes': (call) => answers.changedAttributes(call, () => setAttributes(calls, call)),
    'read-link': (call) => answers.bytes(call, async () => Buffer.from(await calls.readLink(call.inode))),
    symlink(call) {
      const { name, target } = call.request;
      answers.entry(call, name, () => calls.symlink(call.inode, name, target, callerOf(call)));
    },
    'make-node'(call) {
      const { name, mode, device } = call.request;
      answers.entry(call, name, () => calls.makeNode(call.inode, name, mode, device, callerOf(call)));
    },
    'make-directory'(call) {
      const { name, mode } = call.request;
      answers.entry(call, name, () => calls.makeDirectory(call.inode, name, mode, callerOf(call)));
    },
    link(call) {
      const { name, of } = call.request;
      answers.entry(call, name, () => calls.link(numbers.inode(of), call.inode, name, call.header.pid));
    },
    unlink: (call) =>
      answers.changedName(call, () => calls.unlink(call.inode, call.request.name, call.header.uid)),
    'remove-directory': (call) =>
      answers.done(call, () => calls.removeDirectory(call.inode, call.request.name)),
    rename(call) {
      const { name, flags, toParent, toName } = call.request;
      const { uid, gid } = call.header;
      const to = { parent: numbers.inode(toParent), name: toName };
      const from = { parent: call.inode, name };
      answers.renamed(call, from, to, (flags & RENAME_EXCHANGE) !== 0, () =>
        calls.rename(from, to, flags, uid, gid),
      );
    },
    open(call) {
      const { flags, killsPrivileges } = call.request;
      answers.opened(call, () => calls.open(call.inode, flags, callerOf(call, killsPrivileges)));
    },
    create(call) {
      const { name, mode, flags, killsPrivileges } = call.request;
      answers.created(call, name, () =>
        calls.create(call.inode, name, mode, flags, callerOf(call, killsPrivileges)),
      );
    },
    tmpfile(call) {
      const { mode, flags, killsPrivileges } = call.request;
      answers.created(call, null, () =>
        calls.createUnnamed(call.inode, mode, flags, callerOf(call, killsPrivileges)),
      );
    },
    read(call) {
      const { handle, offset, length } = call.request;
      answers.bytes(
        call,
        () => calls.read(handle, offset, length),
        (bytes) => calls.taken(handle, bytes),
      );
    },
    write(call) {
      const { handle, offset, bytes, appends, killsPrivileges } = call.request;
      answers.count(call, () => calls.write(handle, offset, bytes, callerOf(call, killsPrivileges), appends));
    },
    flush: (call) => answers.done(call, () => calls.flush(call.request.handle, call.request.owner)),
    persist: (call) => answers.done(call, () => calls.persist(call.request.handle)),
    'persist-directory': (call) =>
      answers.done(call, () => calls.persistDirectory(call.inode, call.request.handle)),
    release: (call) => answers.done(call, () => calls.release(call.request.handle)),
    allocate(call) {
      const { handle, mode, offset, length } = call.request;
      // The kernel does not say whether to clear set-id bits: this does so as a write does, unless root calls.
      const by = callerOf(call, call.header.uid !== 0);
      answers.done(call, () => calls.allocate(handle, mode, offset, length, by));
    },
    seek(call) {
      const { handle, offset, whence } = call.request;
      const what = soughtBy(whence);
      answers.count(call, () => calls.seek(handle, offset, what));
    },
    'copy-range'(call) {
      const { from, fromOffset, to, toOffset, length, flags } = call.request;
      if (flags !== 0) throw new ErrnoError('EINVAL', `Cannot copy with flags ${flags}`);
      const by = callerOf(call, call.header.uid !== 0);
      answers.count(call, () => calls.copyRange(from, fromOffset, to, toOffset, length, by));
    },
    'open-directory': (call) =>
      answers.put(
        call,
        () => calls.openDirectory(call.inode, call.request.flags),
        (reply, at, handle) => putOpened(reply, at, handle, 0),
        (handle) => calls.releaseDirectory(handle),
      ),
    'read-directory': (call) => answers.listing(call),
    'release-directory': (call) => answers.done(call, () => calls.releaseDirectory(call.request.handle)),
    space: (call) => answers.put(call, () => calls.space(call.inode), putSpace),
    xattr: (call) => answers.sized(call, () => calls.xattr(call.inode, call.request.name)),
    xattrs: (call) =>
      answers.sized(call, async () => {
        const names = await calls.xattrs(call.inode, callerOf(call));
        return Buffer.from(names.map((name) => `${name}\0`).join(''));
      }),
    'set-xattr'(call) {
      const { name, value, flags, clearsSetgid } = call.request;
      answers.done(call, () =>
        calls.setXattr(call.inode, name, value, flags, clearsSetgid).finally(changedXattr),
      );
    },
    'remove-xattr': (call) => answers.done(call, () => calls.removeXattr(call.inode, call.request.name)),
    ioctl: (call) => answers.put(call, () => answerIoctl(calls, answers, call), putIoctl),
    'lock-holder': (call) =>
      answers.put(call, () => calls.lockHolder(call.request.handle, call.request.lock), putLockHolder),
    lock(call) {
      const { handle, lock, waits } = call.request;
      const abort = new AbortController();
      answers.done(call, () => calls.lock(handle, lock, waits, abort.signal), abort);
    },
  };
}

/** Truncates, then sets the other attributes. A request without changes, such as `chown` to -1, sets the ctime. */
async function setAttributes(
  calls: FileSystemCalls,
  call: DecodedRequest<RequestOf<'set-attributes'>>,
): Promise<Answered> {
  const { inode } = call;
  const { sizeBytes, isOpen, killsPrivileges, changes } = call.request;
  const by = callerOf(call, killsPrivileges);
  if (sizeBytes === undefined) {
    return Object.keys(changes).length === 0
      ? calls.touchStatus(inode, by)
      : calls.setAttributes(inode, changes);
  }
  const attributes = await calls.truncate(inode, sizeBytes, by, !isOpen);
  const { modified, ...others } = changes;
  // The truncate has set the current time already.
  const rest = modified === undefined || modified.kind === 'now' ? others : changes;
  return Object.keys(rest).length === 0 ? attributes : calls.setAttributes(inode, rest);
}

async function answerIoctl(
  calls: FileSystemCalls,
  answers: RequestAnswers,
  call: DecodedRequest<RequestOf<'ioctl'>>,
): Promise<Buffer> {
  const { inode, request } = call;
  const form = flagsFormOf(request.command);
  if (form === undefined) throw new ErrnoError('ENOTTY', `Cannot do ${request.command.toString(16)}`);
  if (!form.sets) return encodeFlags(form, (await calls.attributes(inode)).flags ?? []);
  await answers.changingAttributes(call, () =>
    calls.setFlags(inode, decodeFlags(form, request.bytes), callerOf(call)),
  );
  return Buffer.alloc(0);
}
