"""Policy gradients: episodes without end, until the running reward says that the task is solved."""

import argparse
from itertools import count

import torch
from torch import nn, optim
from torch.distributions import Categorical

parser = argparse.ArgumentParser(description="REINFORCE example")
parser.add_argument("--gamma", type=float, default=0.9)
parser.add_argument("--seed", type=int, default=543)
parser.add_argument("--log-interval", type=int, default=20)
args = parser.parse_args()


class Env:
    """Keep a drifting point near the origin; the threshold is what counts as solved."""

    reward_threshold = 14.0

    def reset(self):
        self.at, self.left = torch.randn(1) * 0.5, 20
        return self.at

    def step(self, action):
        self.at = self.at + (action - 0.5) * 0.4 + torch.randn(1) * 0.05
        self.left -= 1
        return self.at, float(self.at.abs() < 0.5), self.left == 0


env = Env()
torch.manual_seed(args.seed)
policy = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = optim.Adam(policy.parameters(), lr=1e-2)


def finish_episode(log_probs, rewards):
    R, returns = 0.0, []
    for r in rewards[::-1]:
        R = r + args.gamma * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    optimizer.zero_grad()
    (-(torch.stack(log_probs) * returns).sum()).backward()
    optimizer.step()


def main():
    running_reward = 5.0
    for i_episode in count(1):
        state, done = env.reset(), False
        log_probs, rewards = [], []
        while not done:
            m = Categorical(logits=policy(state))
            action = m.sample()
            log_probs.append(m.log_prob(action))
            state, reward, done = env.step(action.item())
            rewards.append(reward)
        running_reward = 0.01 * sum(rewards) + 0.99 * running_reward
        finish_episode(log_probs, rewards)
        if i_episode % args.log_interval == 0:
            print(f"Episode {i_episode}\tLast reward: {sum(rewards):.2f}\tAverage reward: {running_reward:.2f}")
        if running_reward > env.reward_threshold:
            print(f"Solved! Running reward is now {running_reward}")
            break


if __name__ == "__main__":
    main()
