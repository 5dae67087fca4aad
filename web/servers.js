/** The cluster's servers: one card each, with its actions. */

import { button, byId, h, KeyedList, setAttribute, setText } from './dom.js';
import { formatBytes, formatClock, formatRate, formatSeconds, formatUptime } from './format.js';

/** Each state has a shape and a word, not only a colour. */
const STATES = {
  serving: ['●', 'serving', 'good'],
  recovering: ['◐', 'recovering', 'neutral'],
  'clock-fault': ['▲', 'clock out of bounds', 'bad'],
  'storage-failed': ['■', 'disk failed', 'bad'],
  unreachable: ['○', 'unreachable', 'bad'],
};

const RUNS = { running: '', paused: 'paused', dead: 'killed', cut: 'cut off' };

export class ServersView {
  #list;
  #actions;
  /** States reported by the process that started the servers; empty without one. */
  #processes = new Map();
  #last = [];
  #reporter = '';

  /** @param {{ run: (what: string, server: string) => void }} actions */
  constructor(actions) {
    this.#actions = actions;
    this.#list = new KeyedList(byId('server-list'), (id) => this.#card(id));
  }

  update(servers, reporter) {
    this.#last = servers;
    this.#reporter = reporter;
    this.#list.update(servers.map((server) => [server.id, server]));
  }

  processes(processes) {
    this.#processes = new Map(processes.map((process) => [process.id, process.state]));
    this.update(this.#last, this.#reporter);
  }

  #card(id) {
    const sign = h('span', { class: 'sign', 'aria-hidden': 'true' });
    const state = h('span', { class: 'state' });
    const mark = h('span', { class: 'told', hidden: true }, 'serves this page');
    const facts = {};
    const list = h('dl', { class: 'facts' });
    for (const [key, term] of [
      ['clock', 'Clock'],
      ['disk', 'Disk'],
      ['roles', 'Primary, backup'],
      ['traffic', 'Writes, reads per second'],
      ['up', 'Up'],
    ]) {
      facts[key] = h('dd');
      list.append(h('div', {}, h('dt', {}, term), facts[key]));
    }
    const meter = h('meter', { min: 0, max: 1, 'aria-label': `Disk of ${id} in use` });
    const act = (text, what, more = {}) =>
      button(text, `${text} ${id}`, () => this.#actions.run(what, id), { 'data-act': what, ...more });
    const admin = { 'data-needs': 'admin' };
    const own = ['kill', 'pause', 'resume', 'cut', 'heal', 'restart'];
    const buttons = h(
      'div',
      { class: 'actions', role: 'group', 'aria-label': `Actions for ${id}` },
      act('Kill', 'kill'),
      act('Pause', 'pause'),
      act('Resume', 'resume'),
      act('Cut off', 'cut'),
      act('Reconnect', 'heal'),
      act('Restart', 'restart'),
      act('Drain', 'drain', admin),
      act('End drain', 'in', admin),
      act('Scrub', 'scrub', admin),
    );
    const element = h(
      'li',
      { class: 'card server' },
      h('div', { class: 'card-head' }, h('h3', {}, id), h('p', {}, sign, state), mark),
      meter,
      list,
      buttons,
    );
    const update = (server) => {
      const [shape, label, mood] = STATES[server.state] ?? ['?', server.state, 'neutral'];
      const process = this.#processes.get(id);
      const run = RUNS[process] ?? '';
      setText(sign, shape);
      setText(
        state,
        [run === '' ? label : run, membershipText(server), server.diskFull ? 'disk full' : '']
          .filter(Boolean)
          .join(', ') + (server.state === 'recovering' ? `, ${formatSeconds(server.recoveringMs)} more` : ''),
      );
      setAttribute(element, 'data-mood', mood);
      setAttribute(mark, 'hidden', this.#reporter !== server.url);
      const there = server.state !== 'unreachable';
      setText(
        facts.clock,
        this.#reporter === server.url ? 'the reference' : there ? formatClock(server.clock) : '–',
      );
      setText(
        facts.disk,
        server.totalBytes > 0
          ? `${formatBytes(server.freeBytes)} free of ${formatBytes(server.totalBytes)}`
          : '–',
      );
      setText(facts.roles, there ? `${server.primaries}, ${server.backups}` : '–');
      setText(
        facts.traffic,
        there ? `${formatRate(server.writesPerS)}, ${formatRate(server.readsPerS)}` : '–',
      );
      setText(facts.up, there ? formatUptime(server.uptimeMs) : '–');
      const used = server.totalBytes > 0 ? 1 - server.freeBytes / server.totalBytes : 0;
      if (meter.value !== used) meter.value = used;
      for (const control of buttons.children) {
        const what = control.dataset.act;
        setAttribute(
          control,
          'hidden',
          own.includes(what) ? !isOffered(what, process) : !isOfferedBy(what, server),
        );
      }
    };
    return { element, update };
  }
}

/** Actions on a server's process, by its state; none if this cluster was started otherwise. */
function isOffered(what, process) {
  switch (what) {
    case 'kill':
      return process === 'running' || process === 'paused' || process === 'cut';
    case 'pause':
    case 'cut':
      return process === 'running';
    case 'resume':
      return process === 'paused';
    case 'heal':
      return process === 'cut';
    case 'restart':
      return process === 'dead';
    default:
      return false;
  }
}

function isOfferedBy(what, server) {
  if (what === 'drain') return server.membership === 'in';
  if (what === 'in') return server.membership === 'draining';
  return server.state !== 'unreachable';
}

function membershipText({ membership, maintenanceUntilMs, labels = [] }) {
  return [
    { in: '', draining: 'draining', out: 'out' }[membership] ?? membership,
    maintenanceUntilMs === undefined ? '' : 'in maintenance',
    labels.length === 0 ? '' : `${labels.length === 1 ? 'label' : 'labels'} ${labels.join(' and ')}`,
  ]
    .filter(Boolean)
    .join(', ');
}
