/**
 * Tests as conversations in a file: commands, a line of dashes, the expected answer, a blank line.
 *
 *     # Why this matters.
 *     read 1000@a
 *     ----
 *     ack-read lease=⊥ written=⊥
 *
 * `REWRITE=1` writes the answers instead of comparing them; commit them once every changed line is explained.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { test } from 'node:test';

/** Answers the commands of one block, each a line split at spaces. Throwing fails the block. */
export type Handler = (commands: readonly string[][]) => string;
/** The same for systems that answer later. */
export type LateHandler = (commands: readonly string[][]) => string | Promise<string>;

interface Block {
  /** Comments and blank lines before the commands, unchanged. */
  readonly preface: readonly string[];
  readonly commands: readonly string[];
  readonly answer: string;
  readonly line: number;
}

const DASHES = '----';

/**
 * Declares a test for each file of `folder` that ends in `.txt`.
 *
 * @param start makes a handler with fresh state; called once per file
 */
export function playConversations(folder: string, start: (name: string) => LateHandler): void {
  for (const file of readdirSync(folder).sort()) {
    if (!file.endsWith('.txt')) continue;
    const path = join(folder, file);
    test(basename(file, '.txt'), () => playFile(path, start(basename(file, '.txt'))));
  }
}

/**
 * Plays a file without a test around it.
 *
 * @returns where an answer differs from the file, and the first line that differs; null if none does
 */
export function conversationDiffers(path: string, handler: Handler): string | null {
  for (const { commands, answer, line } of blocksRead(readFileSync(path, 'utf8')).blocks) {
    const said = handler(commands.map((command) => command.trim().split(/\s+/))).trimEnd();
    if (said === answer) continue;
    const [ours, theirs] = [said.split('\n'), answer.split('\n')];
    const at = ours.findIndex((each, index) => each !== theirs[index]);
    const index = at === -1 ? ours.length : at;
    const nothing = 'nothing';
    return `${basename(path)}:${line}: "${ours[index] ?? nothing}" instead of "${theirs[index] ?? nothing}"`;
  }
  return null;
}

async function playFile(path: string, handler: LateHandler): Promise<void> {
  const { blocks, rest } = blocksRead(readFileSync(path, 'utf8'));
  assert.ok(blocks.length > 0, `${path} has a block`);
  const rewrite = process.env.REWRITE !== undefined;
  let text = '';
  for (const block of blocks) {
    const commands = block.commands.map((line) => line.trim().split(/\s+/));
    const answer = (await handler(commands)).trimEnd();
    if (!rewrite) assert.equal(answer, block.answer, `${path}:${block.line}`);
    text += [...block.preface, ...block.commands, DASHES, answer].join('\n');
    text += '\n\n';
  }
  if (rewrite) writeFileSync(path, `${text.trimEnd()}\n${rest.map((line) => `\n${line}`).join('')}`);
}

function blocksRead(text: string): { blocks: Block[]; rest: string[] } {
  const lines = text.split('\n');
  const blocks: Block[] = [];
  let preface: string[] = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at] as string;
    if (line.trim() === '' || line.startsWith('#')) {
      // The player writes the blank lines between blocks.
      if (line.startsWith('#') || preface.length > 0) preface.push(line);
      at++;
      continue;
    }
    const start = at;
    while (at < lines.length && lines[at] !== DASHES) at++;
    assert.ok(at < lines.length, `The block in line ${start + 1} has a line of dashes`);
    const commands = lines.slice(start, at).filter((command) => !command.startsWith('#'));
    const dashes = at;
    while (at < lines.length && lines[at]?.trim() !== '') at++;
    const answer = lines.slice(dashes + 1, at).join('\n');
    blocks.push({ preface, commands, answer, line: start + 1 });
    preface = [];
  }
  return { blocks, rest: preface.filter((line) => line !== '') };
}
