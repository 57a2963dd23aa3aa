// One colour for each topic, in the order of the range map. Chosen to stay apart on light and on dark ground
// and for most kinds of colour blindness; the legend and the readout always name the topic as well.

export const kTopicColours = [
  [59, 130, 196],
  [232, 141, 45],
  [46, 160, 103],
  [214, 82, 107],
  [139, 105, 204],
  [158, 120, 82],
  [222, 110, 178],
  [115, 143, 58],
  [32, 165, 178],
  [206, 170, 40],
  [94, 108, 210],
  [200, 92, 52],
];

export function topicColour(topic) {
  return kTopicColours[topic % kTopicColours.length];
}
