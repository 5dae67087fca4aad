/**
 * Goal: a clock is called wrong only if it is, and its offset is bounded by what was measured.
 * Method: two clocks with a fixed offset exchange frames with arbitrary delays.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { ClockMonitor } from '../../lease/clock-monitor.ts';
import type { LeaseEnvelope } from '../../lease/messages.ts';
import { CLOCK_DRIFT_MAX } from '../../lease/parameters.ts';

const PEER = 'b' as ServerId;
const SKEW_MS = 100;

function envelope(clockMs: number, echoMs: number, life = 1): LeaseEnvelope {
  return { incarnation: life as Incarnation, startedMs: life, parametersHash: 0, clockMs, echoMs };
}

test('no delay makes a clock within bounds look wrong, and the offset is within the error', () => {
  const delay = fc.double({ min: 0, max: 5000, noNaN: true });
  // At the bound itself the rounding of sums decides.
  const offsetMaxMs = SKEW_MS - 1e-6;
  const offset = fc.double({ min: -offsetMaxMs, max: offsetMaxMs, noNaN: true });
  fc.assert(
    fc.property(offset, fc.array(fc.tuple(delay, delay, delay), { minLength: 1 }), (offsetMs, trips) => {
      const monitor = new ClockMonitor(1, SKEW_MS, 1000);
      let nowMs = 1000;
      for (const [thereMs, heldMs, backMs] of trips) {
        const sentMs = nowMs;
        nowMs += thereMs + heldMs + backMs;
        const clockMs = sentMs + thereMs + heldMs + offsetMs;
        assert.equal(monitor.observe(PEER, envelope(clockMs, sentMs), nowMs), 'accept');
        const measured = monitor.offset(PEER);
        assert.ok(measured !== null);
        const awayMs = Math.abs(measured.offsetMs - offsetMs);
        assert.ok(awayMs <= measured.errorMs + 1e-6, 'The true offset is within the error');
      }
    }),
  );
});

test("a frame bounds the offset as well if the latest frame from there is old, whatever the clocks' rates", () => {
  const delay = fc.double({ min: 0, max: 50, noNaN: true });
  const held = fc.double({ min: 0, max: 3_600_000, noNaN: true });
  const rate = fc.double({ min: -CLOCK_DRIFT_MAX, max: CLOCK_DRIFT_MAX, noNaN: true });
  const offset = fc.double({ min: -SKEW_MS, max: SKEW_MS, noNaN: true });
  fc.assert(
    fc.property(delay, held, delay, rate, rate, offset, (thereMs, heldMs, backMs, here, there, offsetMs) => {
      const clockHere = (ms: number): number => 1_000 + ms * (1 + here);
      // Such that it differs by `offsetMs` when the second frame leaves.
      const clockThere = (ms: number): number => {
        const sentMs = thereMs + heldMs;
        return clockHere(sentMs) + offsetMs + (ms - sentMs) * (1 + there);
      };
      const [ours, theirs] = [new ClockMonitor(1, SKEW_MS, 1000), new ClockMonitor(-1e7, SKEW_MS, 1000)];
      theirs.observe(PEER, envelope(clockHere(0), 0), clockThere(thereMs));
      const sentMs = clockThere(thereMs + heldMs);
      const arrivedMs = clockHere(thereMs + heldMs + backMs);
      ours.observe(PEER, envelope(sentMs, theirs.echoMs(PEER, sentMs)), arrivedMs);
      const measured = ours.offset(PEER);
      assert.ok(measured !== null);
      assert.ok(Math.abs(measured.offsetMs - offsetMs) <= measured.errorMs + 1e-6);
      const slackMs = 4 * CLOCK_DRIFT_MAX * (1 + CLOCK_DRIFT_MAX) * heldMs;
      assert.ok(2 * measured.errorMs <= (thereMs + backMs) * (1 + CLOCK_DRIFT_MAX) + slackMs + 1e-6);
    }),
    { examples: [[1, 60_000, 1, -CLOCK_DRIFT_MAX, CLOCK_DRIFT_MAX, 0]] },
  );
});

test('a reading of a peer that is disconnected is repeated as it was', () => {
  const monitor = new ClockMonitor(1, SKEW_MS, 1000);
  monitor.observe(PEER, envelope(1000, 0), 1000);
  assert.equal(monitor.echoMs(PEER, 2000), 1000 + 1000 * (1 - 2 * CLOCK_DRIFT_MAX));
  assert.equal(monitor.echoMs(PEER, 900), 1000, 'This clock was read before the frame');
  monitor.disconnected(PEER);
  assert.equal(monitor.echoMs(PEER, 3000), 1000);
  monitor.observe(PEER, envelope(3000, 0), 3010);
  assert.equal(monitor.echoMs(PEER, 3010), 3000);
});

test('a clock that is out of bounds is found by one quick exchange, ahead or behind', () => {
  for (const offsetMs of [SKEW_MS + 5, -SKEW_MS - 5]) {
    const monitor = new ClockMonitor(1, SKEW_MS, 1000);
    assert.equal(monitor.observe(PEER, envelope(1001 + offsetMs, 1000), 1002), 'clock-out-of-bounds');
    assert.equal(monitor.offset(PEER)?.outOfBounds, true);
  }
});

test('without an echo a peer that is behind cannot be distinguished from a slow network', () => {
  const monitor = new ClockMonitor(1, SKEW_MS, 1000);
  assert.equal(monitor.observe(PEER, envelope(500, 0), 1000), 'accept');
  assert.equal(monitor.offset(PEER), null);
});

test('an echo of an earlier incarnation is not used', () => {
  const monitor = new ClockMonitor(900, SKEW_MS, 1000);
  assert.equal(monitor.observe(PEER, envelope(500, 800), 1000), 'accept');
  assert.equal(monitor.offset(PEER), null);
});

test('incarnations of a peer follow each other, and an earlier one is not accepted again', () => {
  const monitor = new ClockMonitor(1, SKEW_MS, 1000);
  assert.equal(monitor.observe(PEER, envelope(1000, 0, 3), 1000), 'accept');
  assert.equal(monitor.observe(PEER, envelope(1001, 0, 7), 1001), 'accept');
  assert.equal(monitor.observe(PEER, envelope(1002, 0, 3), 1002), 'older-life');
  assert.equal(monitor.echoMs(PEER, 1001), 1001);
});

test('an outlier differs from a majority of at least two peers', () => {
  const monitor = new ClockMonitor(1, SKEW_MS, 1000);
  monitor.observe('b' as ServerId, envelope(2000, 0), 1000);
  assert.equal(monitor.isOutlier(1000), false);
  monitor.observe('c' as ServerId, envelope(1000, 0), 1000);
  assert.equal(monitor.isOutlier(1000), false);
  monitor.observe('c' as ServerId, envelope(2000, 0), 1001);
  assert.equal(monitor.isOutlier(1001), true);
});

test('a disconnected peer that was found wrong long ago makes no clock an outlier', () => {
  const monitor = new ClockMonitor(1, SKEW_MS, 1000);
  monitor.observe('b' as ServerId, envelope(2000, 0), 1000);
  monitor.observe('c' as ServerId, envelope(50_000, 0), 50_000);
  monitor.observe('d' as ServerId, envelope(51_000, 0), 50_000);
  assert.equal(monitor.isOutlier(50_000), false);
  monitor.observe('b' as ServerId, envelope(51_000, 0), 50_000);
  assert.equal(monitor.isOutlier(50_000), true, 'Both of the connected peers');
});

test("a peer's clock counts as ahead by at most the permitted difference, and only of connected peers", () => {
  const monitor = new ClockMonitor(1, SKEW_MS, 1000);
  // Both bounds are known, and the frame was slow: its sender seems far behind.
  monitor.observe(PEER, envelope(1000, 990), 2900);
  assert.equal(monitor.aheadMs(2900), SKEW_MS);
  assert.equal(monitor.aheadMs(4000), 0);
});

test('a peer whose clock was set back between two incarnations is accepted again once the earlier one is silent', () => {
  const monitor = new ClockMonitor(1, SKEW_MS, 1000);
  assert.equal(monitor.observe(PEER, envelope(5000, 0, 7), 1000), 'clock-out-of-bounds');
  assert.equal(monitor.observe(PEER, envelope(1500, 0, 3), 1500), 'older-life');
  assert.equal(monitor.observe(PEER, envelope(2100, 0, 3), 2100), 'accept');
});
