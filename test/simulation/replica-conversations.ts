/** The conversations with one replica, each as a scenario that can detect planted bugs. */
import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { conversationDiffers } from '../data-driven.ts';
import { Spoken } from '../replica/spoken.ts';

const FOLDER = fileURLToPath(new URL('../testdata/replica/', import.meta.url));

/** By file, such as `guard.txt`; each returns the first wrong answer, or the broken rule. */
export const CONVERSATIONS: Readonly<Record<string, () => string | null>> = Object.fromEntries(
  readdirSync(FOLDER)
    .filter((file) => file.endsWith('.txt'))
    .map((file) => [basename(file), () => conversationPlay(file)]),
);

function conversationPlay(file: string): string | null {
  const spoken = new Spoken();
  try {
    return conversationDiffers(join(FOLDER, file), (commands) => {
      const lines = commands.flatMap((words) => spoken.say(words));
      return lines.length === 0 ? 'ok' : lines.join('\n');
    });
  } catch (error) {
    // A rule that the replica asserts itself.
    if (error instanceof Error) return `${file}: ${error.message}`;
    throw error;
  }
}
