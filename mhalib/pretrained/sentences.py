"""The sentences whose attention maps come with the package."""

SENTENCES = (
    "The cat sat on the mat because it was tired.",
    "Tired was it because mat the on sat cat the.",  # the same words, backwards
    "The lamp fell off the shelf because it was heavy.",  # what is "it"?
    "The lamp fell off the shelf because it was narrow.",
    "Anna thanked Ben for the map he had drawn.",
    "Who left the kitchen window open last night?",
    "Where did you put the blue scissors?",
    "Round and round and round went the wooden horses.",
    "The axolotl grew a new leg in six weeks.",  # a rare word
    "In 1969 the bridge carried 4,300 carts a day.",
    "When the rain stopped, the children ran outside.",
    "I came early; she came late; nobody else came.",
    '"Wait!" she shouted, but the bus drove on.',
    "The letter was written by her uncle in Lisbon.",
    "The dog that chased the postman sleeps now.",
    "The paths behind the old mill are muddy.",  # "are" looks past "mill" for its subject
    "Anna called Ben. He did not answer.",
    "We bought apples, pears, plums and a melon.",
    "Dr. Lee's train doesn't stop here.",
    "Nobody has ever seen this door open.",
    "The teacher who lent the students her books asked, two weeks later, whether they had read them.",
    "green tea with honey",
    "Go!",
)
"""The sentences that `load_maps` has the attention maps of."""
