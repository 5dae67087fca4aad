const UNITS = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function formatBytes(bytes) {
  if (bytes === 1) return '1 byte';
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function formatSeconds(ms) {
  return `${(ms / 1000).toFixed(1)} s`;
}

export function formatUptime(ms) {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} days`;
}

/** `30 days`: in the largest unit that divides it. */
export function formatDuration(ms) {
  const [unitMs, unit] = [
    [86_400_000, 'days'],
    [3_600_000, 'hours'],
    [60_000, 'minutes'],
    [1_000, 'seconds'],
  ].find(([one]) => ms % one === 0 && ms >= 2 * one) ?? [1, 'ms'];
  return `${ms / unitMs} ${unit}`;
}

export function formatRate(perS) {
  return perS >= 100 ? `${Math.round(perS)}` : perS.toFixed(perS === 0 || perS >= 10 ? 0 : 1);
}

/** `+0.2 ± 0.1 ms` */
export function formatClock(clock) {
  if (clock === null) return 'not compared yet';
  const sign = clock.offsetMs < 0 ? '−' : '+';
  return `${sign}${Math.abs(clock.offsetMs).toFixed(1)} ± ${clock.errorMs.toFixed(1)} ms`;
}

export function formatTime(atMs) {
  return new Date(atMs).toLocaleTimeString('en-GB');
}

/** A hue for each epoch, far from those of neighbouring epochs. */
export function epochHue(epoch) {
  return Math.round((168 + epoch * 137.508) % 360);
}
