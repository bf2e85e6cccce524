"""DQN in one file: learning starts late, a step every few timesteps, a target network."""

import random
from collections import deque
from dataclasses import dataclass

import torch
import tyro
from torch import nn, optim


@dataclass
class Args:
    seed: int = 1
    total_timesteps: int = 3000
    learning_rate: float = 2.5e-4
    buffer_size: int = 1000
    gamma: float = 0.99
    tau: float = 1.0
    target_network_frequency: int = 500
    batch_size: int = 32
    start_e: float = 1
    end_e: float = 0.05
    exploration_fraction: float = 0.5
    learning_starts: int = 600
    train_frequency: int = 10


class Line:
    """A walker on a line that is paid at the right end."""

    def reset(self):
        self.at, self.left = random.uniform(-1, 0), 40
        return torch.tensor([self.at, self.left / 40])

    def step(self, action):
        self.at += 0.1 * (action * 2 - 1)
        self.left -= 1
        done = self.left == 0 or self.at > 1
        return torch.tensor([self.at, self.left / 40]), float(self.at > 1), done


def linear_schedule(start_e, end_e, duration, t):
    return max((end_e - start_e) / duration * t + start_e, end_e)


if __name__ == "__main__":
    args = tyro.cli(Args)
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    q_network, target_network = (nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 2)) for _ in range(2))
    optimizer = optim.Adam(q_network.parameters(), lr=args.learning_rate)
    target_network.load_state_dict(q_network.state_dict())
    rb = deque(maxlen=args.buffer_size)
    envs = Line()
    obs = envs.reset()
    for global_step in range(args.total_timesteps):
        epsilon = linear_schedule(
            args.start_e, args.end_e, args.exploration_fraction * args.total_timesteps, global_step
        )
        action = random.randrange(2) if random.random() < epsilon else int(q_network(obs).argmax())
        next_obs, reward, done = envs.step(action)
        rb.append((obs, action, next_obs, reward, float(done)))
        obs = envs.reset() if done else next_obs
        if global_step > args.learning_starts:
            if global_step % args.train_frequency == 0:
                s, a, s2, r, d = zip(*random.sample(rb, args.batch_size), strict=True)
                with torch.no_grad():
                    target_max = target_network(torch.stack(s2)).max(dim=1).values
                    td_target = torch.tensor(r) + args.gamma * target_max * (1 - torch.tensor(d))
                old_val = q_network(torch.stack(s)).gather(1, torch.tensor(a)[:, None]).squeeze()
                loss = nn.functional.mse_loss(td_target, old_val)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if global_step % 100 == 0:
                    print(f"step {global_step} loss {loss.item():.4f} epsilon {epsilon:.2f}")
            if global_step % args.target_network_frequency == 0:
                for target, param in zip(target_network.parameters(), q_network.parameters(), strict=True):
                    target.data.copy_(args.tau * param.data + (1.0 - args.tau) * target.data)
