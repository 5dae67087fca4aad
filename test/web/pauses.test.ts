import assert from 'node:assert/strict';
import { test } from 'node:test';

interface Pause {
  readonly fromS: number;
  readonly toS: number | null;
  readonly reason: string;
}

interface State {
  readonly atMs: number;
  readonly sinceWriteMs: number | null;
  readonly file: {
    readonly path: string;
    readonly replicas: readonly { readonly version: number | null }[];
  } | null;
}

interface PausesOfPage {
  readonly all: readonly Pause[];
  add(state: State, teller: string, reason: string): void;
  forget(beforeS: number): void;
}

// The page's modules have no types: they are what a browser runs.
const { Pauses, pauseText } = (await import(new URL('../../web/pauses.js', import.meta.url).href)) as {
  readonly Pauses: new () => PausesOfPage;
  readonly pauseText: (pause: Pause) => string;
};

const TICK_MS = 250;

/** A page that receives states of one file, four times per second unless the server or the page is busy. */
function page(tickMs = TICK_MS) {
  const pauses = new Pauses();
  const time = { ms: 100_000 };
  const tell = (version: number | null, teller = 's1', reason = '') => {
    time.ms += tickMs;
    const file = { path: 'main:/a', replicas: [{ version }, { version: null }] };
    pauses.add({ atMs: time.ms, sinceWriteMs: null, file }, teller, reason);
  };
  const load = (from: number, seconds: number, teller = 's1') => {
    for (let tick = 0; tick < seconds * 4; tick++) tell(from + tick, teller);
    return from + seconds * 4 - 1;
  };
  return { pauses, tell, load, time };
}

test('a steady load that pauses for two seconds', () => {
  const { pauses, tell, load } = page();
  const version = load(1, 4);
  for (let tick = 0; tick < 7; tick++) tell(version);
  assert.equal(pauseText(pauses.all[0] as Pause), 'writes of main:/a wait');
  tell(version + 1);
  assert.equal(pauseText(pauses.all[0] as Pause), '2.0 s without writes of main:/a');
  tell(version + 2, 's1', 'until the lease of s1 had ended');
  assert.equal(pauses.all[0]?.reason, 'until the lease of s1 had ended', 'Reported a moment later');
  load(version + 3, 4);
  assert.equal(pauses.all.length, 1);
});

test('a report of another server about newer writes does not end a pause that it has not seen end', () => {
  const { pauses, tell, load } = page();
  const version = load(1, 4);
  tell(null, 's2');
  for (let tick = 0; tick < 6; tick++) tell(version + 3, 's2');
  tell(version + 4, 's2');
  assert.equal(pauseText(pauses.all[0] as Pause), '2.0 s without writes of main:/a');
});

test('a load with rare states is steady, too', () => {
  for (const tickMs of [400, 1_000]) {
    const { pauses, tell, load } = page(tickMs);
    const version = load(1, 4);
    for (let tick = 0; tick < 3; tick++) tell(version);
    tell(version + 1);
    assert.equal(
      pauseText(pauses.all[0] as Pause),
      `${(tickMs / 250).toFixed(1)} s without writes of main:/a`,
    );
  }
});

test('the last pause is named when its time has left the chart', () => {
  const { pauses, tell, load, time } = page();
  let version = load(1, 4);
  for (let round = 0; round < 2; round++) {
    for (let tick = 0; tick < 7; tick++) tell(version);
    version = load(version + 1, 4);
  }
  assert.equal(pauses.all.length, 2);
  pauses.forget(time.ms / 1_000);
  assert.equal(pauses.all.length, 1);
  assert.equal(pauseText(pauses.all[0] as Pause), '2.0 s without writes of main:/a');
});

test('a load that ends, or is none, has no pause', () => {
  const ended = page();
  const version = ended.load(1, 4);
  for (let tick = 0; tick < 100; tick++) ended.tell(version);
  assert.deepEqual(ended.pauses.all, []);
  const seldom = page();
  for (let round = 0; round < 10; round++) {
    seldom.tell(round + 1);
    for (let tick = 0; tick < 8; tick++) seldom.tell(round + 1);
  }
  assert.deepEqual(seldom.pauses.all, []);
});
