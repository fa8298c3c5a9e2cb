# SPDX-License-Identifier: Apache-2.0
"""A tool that changes its agent: it adds a line to the block "human" of the agent's memory."""


def remember(fact: str, agent_state: "AgentState") -> str:  # noqa: F821  (brig gives agent_state, not the model)
    """Remembers a fact about the user.

    Args:
        fact: one sentence
    """
    block = agent_state.memory.get_block("human")
    lines = block.value.splitlines()
    if fact in lines:
        return "I knew that"
    agent_state.memory.update_block_value("human", "\n".join(lines + [fact]))
    return f"{len(lines) + 1} facts by now"
