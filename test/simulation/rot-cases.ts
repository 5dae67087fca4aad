/** Directed runs: objects that rot on disks, and who finds it out when. */
import type { Campaign } from './planted.ts';
import { FileContents, WHOLE_FILE } from './system-file.ts';
import { A, B, C, directed, HEARTBEATS_MS, LONG_MS, type Script, X, Y } from './system-script.ts';
import type { FileWish } from './system-subject.ts';

const APPEND: FileWish = { kind: 'append', value: 'appended' };
/** Changes a part of what `APPEND` wrote. */
const PATCH: FileWish = { kind: 'patch', at: 2, value: 'PATCH' };
/** The object that both are about: behind the registers. */
const LOG = 3;
const PATCHED = 'apPATCHd';

/** c's copy of an object rots; then a part of it changes while c is away, so that nobody has what c would need. */
function spoil(s: Script): void {
  s.lead(A);
  s.write(A, X);
  s.write(A, APPEND);
  s.run(HEARTBEATS_MS);
  s.isolated.add(C);
  s.system.troubles.flip(C, LOG);
  s.expect(s.write(A, PATCH).answer?.kind === 'done', 'two of three commit');
  s.isolated.clear();
}

function tail(shown: string | null): string | undefined {
  return shown?.slice(-PATCHED.length);
}

export const ROT_CASES: Campaign['scenarios'] = {
  /** b finds it out as somebody reads, and has the bytes from another. */
  'rot under a read': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.read(B);
    s.system.troubles.flip(B, 0);
    s.expect(s.shown(B) === 'xxxxxxxx', 'b shows what was written');
    s.expect(s.system.troubles.rot.mendedReads === 1, 'it came from another replica');
    s.expect(s.shown(B) === 'xxxxxxxx' && s.system.troubles.rot.mended === 1, 'b has put it right');
  }),

  /** b is cut off while it may answer reads: it shows no other bytes. */
  'rot and nobody to ask': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.read(B);
    s.expect(s.shown(B) === 'xxxxxxxx', 'b answers reads');
    s.system.troubles.flip(B, 0);
    s.isolated.add(B);
    s.expect(s.read(B).answer?.kind === 'integrity', 'b says that it cannot');
    s.isolated.clear();
    s.read(B);
    s.expect(s.shown(B) === 'xxxxxxxx', 'with the others it can');
  }),

  /** The only whole copy is c's. */
  'rot everywhere but at one': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.run(HEARTBEATS_MS);
    s.system.troubles.flipAll(0, C);
    s.expect(s.shown(A) === 'xxxxxxxx', 'a has it from c');
    s.system.world.crash(C);
    s.read(B);
    s.expect(s.shown(B) === 'xxxxxxxx', 'b has it from a');
  }),

  /** One object is lost, and no other; and it comes back with the next write of it. */
  'rot everywhere': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.write(A, { ...X, object: 1 });
    s.run(HEARTBEATS_MS);
    s.system.troubles.flipAll(0, null);
    for (const server of [A, B]) {
      s.read(server, '1');
      s.expect(s.read(server).answer?.kind === 'integrity', 'nobody has it');
      s.expect(s.read(server, WHOLE_FILE).answer?.kind === 'integrity', 'it is a part of the file');
      s.expect(s.shown(server, '1') === 'xxxxxxxx', 'the others are there');
    }
    s.system.revoke(A);
    s.lead(B);
    s.expect(s.shown(B, '1') === 'xxxxxxxx', 'also at the next primary');
    s.expect(s.write(B, Y).answer?.kind === 'done', 'it is written anew');
    s.run(HEARTBEATS_MS);
    s.read(C);
    s.expect(s.shown(C) === 'yyyyyyyy', 'and read again');
    s.expect(s.system.hasConverged(), 'all replicas hold the same');
  }),

  /** c cannot apply what the others have applied: it takes over their state, and is whole. */
  'write into a damaged object': directed({}, (s) => {
    spoil(s);
    s.run(2 * HEARTBEATS_MS);
    s.expect(s.system.troubles.rot.damagedStarts > 0, 'c has met it');
    s.expect(s.system.hasConverged(), 'all replicas hold the same');
    s.system.world.crash(A);
    s.system.world.crash(B);
    s.system.world.restart(B);
    s.lead(C);
    s.expect(tail(s.shown(C, WHOLE_FILE)) === PATCHED, 'c has it all');
  }),

  /** The same with the other replicas in reach of the version before: nothing fails. */
  'write into an object that can be mended': directed({}, (s) => {
    s.lead(A);
    s.write(A, APPEND);
    s.run(HEARTBEATS_MS);
    s.system.troubles.flip(A, LOG);
    s.expect(s.write(A, PATCH).answer?.kind === 'done', 'a has it from another');
    s.expect(s.system.troubles.rot.mendedApplies === 1, 'before it changed a part of it');
    s.expect(s.system.troubles.rot.damagedStarts === 0, 'nobody failed');
    s.expect(tail(s.shown(A, WHOLE_FILE)) === PATCHED, 'it is what it should be');
  }),

  /** c knows itself damaged, and nobody has brought it another state yet, when a dies: c has forgotten nothing. */
  'damaged voter': directed({}, (s) => {
    spoil(s);
    s.rule = (_from, to, message) => (to === C && message?.kind === 'install' ? 'drop' : null);
    s.run(HEARTBEATS_MS);
    s.expect(s.system.troubles.rot.damagedStarts > 0, 'c has met it');
    s.rule = () => null;
    s.system.world.crash(A);
    s.lead(B);
    s.expect(tail(s.shown(B, WHOLE_FILE)) === PATCHED, 'nothing is lost');
    s.expect(s.write(B, Y).answer?.kind === 'done', 'b and c commit');
  }),

  /** c stands where b does, but for an object: what it could not apply came to nothing with its primary. */
  'damaged at the base': directed({}, (s) => {
    s.lead(A);
    s.write(A, APPEND);
    s.run(HEARTBEATS_MS);
    s.system.troubles.flipAll(LOG, B);
    s.isolated.add(B);
    s.rule = (from, _to, message) => (from === C && message?.kind === 'ack' ? 'drop' : null);
    s.system.troubles.flip(A, LOG);
    s.system.change(A, 91, PATCH);
    s.run(HEARTBEATS_MS);
    s.expect(s.system.troubles.rot.damagedStarts > 0, 'nobody in reach has what the change needs');
    s.system.world.crash(A);
    s.isolated.clear();
    s.rule = () => null;
    s.lead(B);
    s.expect(s.system.troubles.rot.damagedReplaced === 1, "c has b's state");
    s.isolated.add(B);
    const file = s.system.disks.get(C)?.contents;
    s.expect(file instanceof FileContents && !file.isDamaged(LOG), 'it is whole');
  }),

  /** c leads from b's state, of which an object has rotted at b; a has it, and is no part of the majority. */
  'rot at the base': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.write(A, X);
    s.run(HEARTBEATS_MS);
    s.isolated.clear();
    s.system.revoke(A);
    s.system.troubles.flip(B, 0);
    s.rule = (from, _to, message) => (from === A && message?.kind === 'promise' ? 'drop' : null);
    s.lead(C);
    s.expect(s.system.troubles.rot.damagedSources === 1, 'b was asked for it, and found it out');
    s.expect(s.shown(C) === 'xxxxxxxx', 'c has what was written');
    s.read(B);
    s.expect(s.shown(B) === 'xxxxxxxx', 'b has put it right');
  }),

  /** An object is lost, and c, which lacks it, comes to hold the lease: it cannot lead, and leaves that to those who can. */
  'rot that a candidate would need': directed({ leases: 'real', retainedBytesMax: 1 }, (s) => {
    const { world, troubles } = s.system;
    s.write(A, { ...X, object: 1 });
    for (const server of [A, B]) world.call(server, () => s.system.process(server).open());
    s.expect(
      world.runFor(2 * LONG_MS, () => s.system.primary() !== null),
      'somebody leads',
    );
    const first = s.system.primary() ?? A;
    s.isolated.add(C);
    s.expect(s.write(first, X).answer?.kind === 'done', 'two of three commit');
    s.write(first, { ...Y, object: 2 });
    troubles.flipAll(0, null);
    for (const server of [A, B]) world.crash(server);
    s.isolated.clear();
    world.call(C, () => s.system.process(C).open());
    for (const server of [A, B]) world.restart(server);
    s.run(2 * LONG_MS);
    for (const server of [A, B]) world.call(server, () => s.system.process(server).open());
    s.expect(
      world.runFor(4 * LONG_MS, () => s.system.primary() !== null),
      'somebody leads again',
    );
    const next = s.system.primary() ?? A;
    s.expect(s.shown(next, '2') === 'yyyyyyyy', 'what is not lost is there');
    s.expect(s.write(next, { ...X, value: 'anewanew' }).answer?.kind === 'done', 'and can be changed');
  }),

  /** An object is lost that c never had: c takes over the rest, so that b can lead with it. */
  'rot that a backup would need': directed({ retainedBytesMax: 1 }, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.write(A, X);
    s.write(A, { ...Y, object: 1 });
    s.system.troubles.flipAll(0, null);
    s.isolated.clear();
    s.run(2 * HEARTBEATS_MS);
    s.system.world.crash(A);
    s.lead(B);
    s.expect(s.shown(B, '1') === 'yyyyyyyy', 'what is not lost is there');
    s.expect(s.read(B).answer?.kind === 'integrity', 'what is lost is told to be');
    s.expect(s.write(B, { ...X, value: 'anewanew' }).answer?.kind === 'done', 'and can be written anew');
  }),

  /** c catches up with a, whose copy has rotted; b's has not. */
  'rot at a source': directed({ retainedBytesMax: 1 }, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.write(A, X);
    s.write(A, APPEND);
    s.system.troubles.flip(A, LOG);
    s.isolated.clear();
    s.run(2 * HEARTBEATS_MS);
    s.expect(s.system.troubles.rot.damagedSources > 0, 'a has found it out');
    s.expect(s.system.hasConverged(), 'all replicas hold the same');
    s.system.world.crash(B);
    s.system.world.crash(A);
    s.system.world.restart(B);
    s.lead(C);
    s.expect(s.shown(C, WHOLE_FILE)?.endsWith('appended') === true, 'c has it whole');
  }),

  /** Nobody reads b's copy but the scrubber; then the others are gone. */
  'rot found by a scrubber': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.run(HEARTBEATS_MS);
    s.system.troubles.flip(B, 0);
    s.system.world.call(B, () => s.system.process(B).care.scrub());
    s.expect(s.system.troubles.rot.scrubbed === 1, 'b has put it right');
    s.isolated.add(A);
    s.system.revoke(A);
    s.lead(B);
    s.system.world.crash(C);
    s.expect(s.shown(B) === 'xxxxxxxx', 'b needs nobody for it');
  }),

  /** Both at once: c is damaged, and a loses power. b alone is whole, and all comes from it. */
  'rot and a loss of power': directed({}, (s) => {
    spoil(s);
    s.system.troubles.losePower([A], () => 0, true);
    s.run(10);
    s.lead(B, 2 * LONG_MS);
    s.run(4 * HEARTBEATS_MS);
    s.expect(s.system.hasConverged(), 'all replicas hold the same');
    s.expect(tail(s.shown(B, WHOLE_FILE)) === PATCHED, 'nothing is lost');
  }),
};
