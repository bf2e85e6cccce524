"""PPO in one file: tyro, num_steps is the length of a rollout, the iterations follow from total_timesteps."""

from dataclasses import dataclass

import numpy as np
import torch
import tyro
from torch import nn, optim


@dataclass
class Args:
    seed: int = 1
    total_timesteps: int = 2400
    """total timesteps of the experiments"""
    learning_rate: float = 2.5e-4
    num_envs: int = 4
    num_steps: int = 20
    """the number of steps to run in each environment per policy rollout"""
    anneal_lr: bool = True
    num_minibatches: int = 4
    update_epochs: int = 3
    clip_coef: float = 0.2
    batch_size: int = 0
    minibatch_size: int = 0
    num_iterations: int = 0


def play(policy, state):
    """One step of an invented environment: a point shall stay at the origin."""
    dist = torch.distributions.Categorical(logits=policy(state))
    action = dist.sample()
    after = state + torch.stack([action - 1.0, torch.randn(len(state))], 1) * 0.1
    return action, dist.log_prob(action), -after.norm(dim=1), after


if __name__ == "__main__":
    args = tyro.cli(Args)
    args.batch_size = int(args.num_envs * args.num_steps)
    args.minibatch_size = int(args.batch_size // args.num_minibatches)
    args.num_iterations = args.total_timesteps // args.batch_size
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    policy, value = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3)), nn.Linear(2, 1)
    optimizer = optim.Adam([*policy.parameters(), *value.parameters()], lr=args.learning_rate, eps=1e-5)
    global_step = 0
    next_obs = torch.randn(args.num_envs, 2)
    for iteration in range(1, args.num_iterations + 1):
        if args.anneal_lr:
            optimizer.param_groups[0]["lr"] = (1.0 - (iteration - 1.0) / args.num_iterations) * args.learning_rate
        rollout = []
        for _step in range(args.num_steps):
            global_step += args.num_envs
            with torch.no_grad():
                action, logprob, reward, after = play(policy, next_obs)
            rollout.append((next_obs, action, logprob, reward))
            next_obs = after
        b_obs, b_actions, b_logprobs, b_returns = (torch.cat(part) for part in zip(*rollout, strict=True))
        b_inds = np.arange(args.batch_size)
        for _epoch in range(args.update_epochs):
            np.random.shuffle(b_inds)
            for start in range(0, args.batch_size, args.minibatch_size):
                mb = b_inds[start : start + args.minibatch_size]
                dist = torch.distributions.Categorical(logits=policy(b_obs[mb]))
                ratio = (dist.log_prob(b_actions[mb]) - b_logprobs[mb]).exp()
                guess = value(b_obs[mb]).squeeze(1)
                gain = b_returns[mb] - guess.detach()
                clipped = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
                loss = torch.max(-gain * ratio, -gain * clipped).mean() + 0.5 * (guess - b_returns[mb]).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                optimizer.step()
        if iteration % 10 == 0:
            print(f"global_step={global_step}, return={b_returns.mean().item():.3f}")
