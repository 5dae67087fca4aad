/**
 * Conversations with one replica. The files in `test/testdata/replica` contain its inputs; the answers are the actions
 * it takes, one per line; see `spoken.ts`. The replica is server a unless a file says otherwise.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { REPLICA_MARKS } from '../../replica/outbox.ts';
import { type Handler, playConversations } from '../data-driven.ts';
import { Spoken } from './spoken.ts';

const FOLDER = fileURLToPath(new URL('../testdata/replica/', import.meta.url));
const marks = new Set<string>();

playConversations(FOLDER, (): Handler => {
  const spoken = new Spoken(marks);
  return (commands) => {
    const lines = commands.flatMap((words) => spoken.say(words));
    return lines.length === 0 ? 'ok' : lines.join('\n');
  };
});

test('every trace mark occurs in a conversation', () => {
  assert.deepEqual([...marks].sort(), [...REPLICA_MARKS].sort());
});
