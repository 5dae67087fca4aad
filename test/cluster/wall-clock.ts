/**
 * `node --import` loads this before a server's program: sets its wall clock off by the milliseconds in
 * `WALL_CLOCK_OFF_MS`. The monotonic clock stays as it is.
 */
const offMs = Number(process.env.WALL_CLOCK_OFF_MS ?? 0);
const now = Date.now.bind(Date);
Date.now = () => now() + offMs;
