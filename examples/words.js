// SPDX-License-Identifier: Apache-2.0
// A tool in JavaScript: the most frequent words of a text.
//
//     brig tool run examples/words.js --args '{"text": "to be or not to be", "most": 2}'

export async function words(text, most = 3) {
  const counts = new Map();
  for (const word of text.toLowerCase().match(/\p{L}+/gu) ?? []) counts.set(word, (counts.get(word) ?? 0) + 1);
  console.log(`${counts.size} different words`);
  return new Map([...counts].sort((a, b) => b[1] - a[1]).slice(0, most));
}
