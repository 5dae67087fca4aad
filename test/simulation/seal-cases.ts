/** Directed runs: files that are sealed, and what happens between the two seals. */
import type { ServerId } from '../../base/ids.ts';
import { decodeFileOperation } from '../../wire/file-operation.ts';
import type { Campaign } from './planted.ts';
import { A, B, C, directed, HEARTBEATS_MS, LONG_MS, type Script, X, Y } from './system-script.ts';

const ZERO_MS = () => 0;

function seal(s: Script, server: ServerId): void {
  const sealed = s.system.seal(server);
  s.run();
  s.expect(sealed.answer?.kind === 'sealed', 'the file is sealed');
  s.run(HEARTBEATS_MS);
}

/** What others send of the second seal is lost. */
function holdFinal(s: Script): void {
  s.rule = (_from, _to, message) => {
    if (message?.kind !== 'write' || message.operation.view !== undefined) return null;
    const operation = decodeFileOperation(message.operation.body);
    return operation.kind === 'seal' && operation.final ? 'drop' : null;
  };
}

export const SEAL_CASES: Campaign['scenarios'] = {
  /** Whoever has the second seal needs nobody, also in its next life. */
  'sealed and alone': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    seal(s, A);
    for (const server of [A, C]) s.system.world.crash(server);
    s.run(2 * LONG_MS);
    s.expect(s.shown(B) === 'xxxxxxxx', 'b answers reads');
    s.restart(B);
    s.expect(s.shown(B) === 'xxxxxxxx', 'b answers reads');
  }),

  /** After the seal, what was done before is answered once more, and nothing else is done. */
  'sealed and asked again': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    seal(s, A);
    for (const server of [A, B]) {
      const again = s.system.retry(server, 1, X);
      s.run();
      s.expect(again.answer?.kind === 'done' && again.answer.seq === 1, 'it was done, at the same place');
      const write = s.write(server, { ...Y, value: server.repeat(Y.value.length) });
      s.expect(write.answer?.kind === 'sealed', 'nothing changes the file');
    }
    s.expect(s.shown(B) === 'xxxxxxxx', 'it is what it was');
  }),

  /** One change is under way when the seal begins, another comes after that. */
  'sealed with a change under way': directed({}, (s) => {
    s.lead(A);
    s.rule = (_from, _to, message) => (message?.kind === 'ack' ? 'hold' : null);
    const before = s.system.change(A, 91, X);
    s.run();
    const sealed = s.system.seal(A);
    s.run(5);
    const after = s.system.change(A, 92, Y);
    s.run(5);
    s.expect(after.answer === null, 'the second change waits for the seal');
    s.rule = () => null;
    s.system.world.deliver();
    s.run(HEARTBEATS_MS);
    s.expect(before.answer?.kind === 'done', 'the first change counts');
    s.expect(after.answer?.kind === 'sealed', 'the second does not');
    s.expect(sealed.answer?.kind === 'sealed', 'the file is sealed');
    s.expect(s.shown(B) === 'xxxxxxxx', 'it shows the first change');
  }),

  /** a's end comes before the first seal is synced: the next primary goes on. A retry of before is answered as ever. */
  'primary between the seals': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.rule = (_from, _to, message) => (message?.kind === 'flush' ? 'drop' : null);
    const sealed = s.system.seal(A);
    s.run(HEARTBEATS_MS);
    s.expect(sealed.answer === null && s.system.observers.seal === 'sealed', 'the second seal waits');
    s.expect(s.write(A, Y).answer?.kind === 'sealed', 'nothing changes the file');
    s.system.world.crash(A);
    s.rule = () => null;
    s.lead(B);
    const again = s.system.retry(B, 1, X);
    s.run(HEARTBEATS_MS);
    s.expect(again.answer?.kind === 'done' && again.answer.seq === 1, 'it was done, at the same place');
    s.expect(s.system.observers.seal === 'final', 'b seals the file finally');
  }),

  /** The first seal is committed, and nowhere synced, when all lose power: the file is open again, for everybody. */
  'all power between the seals': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.rule = (_from, _to, message) => (message?.kind === 'flush' ? 'drop' : null);
    s.system.diskDelayMs = (_server, kind) => (kind === 'flush-local' ? 10_000 : 0.2);
    s.system.seal(A);
    s.run(HEARTBEATS_MS);
    s.expect(s.system.observers.seal === 'sealed', 'the second seal waits');
    for (const server of [A, B, C]) {
      s.expect(s.system.disks.get(server)?.contents.seal !== 'final', 'nobody has the second seal');
    }
    s.system.diskDelayMs = null;
    s.system.troubles.losePower([A, B, C], ZERO_MS, true);
    s.rule = () => null;
    s.run(10);
    s.lead(C);
    s.expect(s.write(C, Y).answer?.kind === 'done', 'nobody knows of a seal');
    s.expect(s.shown(C) === 'yyyyyyyy', 'the file is open');
  }),

  /** Only a has the second seal, and is cut off; the others lose power, and begin without it, but not without the first. */
  'second seal of one': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    holdFinal(s);
    s.system.seal(A);
    s.run();
    s.expect(s.system.disks.get(A)?.contents.seal === 'final', 'a has the second seal');
    s.expect(s.system.disks.get(B)?.contents.seal === 'sealed', 'b has the first');
    s.system.revoke(A);
    s.isolated.add(A);
    s.system.troubles.losePower([B, C], ZERO_MS, true);
    s.rule = () => null;
    s.run(10);
    s.lead(B);
    s.expect(s.write(B, Y).answer?.kind === 'sealed', 'the first seal is on a majority');
    s.expect(s.shown(A) === 'xxxxxxxx', 'a answers reads');
    s.isolated.clear();
    s.run(2 * HEARTBEATS_MS);
    s.expect(s.shown(C) === 'xxxxxxxx', 'c answers reads');
  }),

  /** b missed it all, and has only the first seal for a while: it must not answer by that. */
  'first seal of a minority': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.rule = (_from, to, message) => (to === C && message?.kind === 'write' ? 'drop' : null);
    s.system.diskDelayMs = (_server, kind) => (kind === 'flush-local' ? 10_000 : 0.2);
    s.system.seal(A);
    s.run();
    s.expect(s.system.disks.get(B)?.contents.seal === 'sealed', 'b has the first seal');
    s.system.revoke(A);
    s.isolated.add(B);
    s.run(LONG_MS);
    s.expect(s.shown(B) === null, 'b does not know that it counts');
  }),
};
